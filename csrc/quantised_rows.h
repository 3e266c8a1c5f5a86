// Rows rotated and rounded to int8: the inputs of int8 products, and their weights.
//
// A row is cut into blocks of 64, the last one filled up with zeros, and each block y is replaced
// by H y, where H is the 64 x 64 Hadamard matrix (entries 1 and -1; H H = 64 I). That spreads an
// outlier over its block, so that one scale for the whole row is precise enough, and with both
// sides rotated a product only grows by 64. Then q = round(127 H y / max |H y|).
// Source: rotation before quantising is from Ashkboos et al. 2024, "QuaRot: Outlier-Free 4-Bit
// Inference in Rotated LLMs"; here each product rotates both of its sides, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "huge_buffer.h"
#include "isa.h"

namespace chairlift {

constexpr int kRotationBlock = 64;

// Where a quantised row goes; both parts are rounded up to whole blocks.
struct QuantisedRow {
  int size;        // values of the row
  float* rotated;  // scratch; may be where the row itself is
  int8_t* out;
  uint8_t flip;    // xored into each byte of `out`
};

// Both return the scale: H y = scale * out (before the flip). It is NaN where the row holds a value
// that is not finite.
struct QuantiseKernels {
  float (*float32)(const float* x, const QuantisedRow& row);
  float (*bfloat16)(const uint16_t* x, const QuantisedRow& row);
};

CHAIRLIFT_DECLARE_KERNELS(QuantiseKernels, quantise_kernels)

// Undoes the rotation of a whole number of blocks, in place.
void rotate_back(float* rotated, int64_t size);

// Quantised activations of a batch, laid out as ActivationRows are.
class QuantisedRows {
 public:
  QuantisedRows(int max_rows, int max_columns);
  int8_t* row(int64_t index) const { return memory_.as<int8_t>() + index * stride_; }
  int64_t stride() const { return stride_; }  // bytes
  size_t bytes() const { return memory_.bytes() + scales_.size() * sizeof(float); }
  float* scales() { return scales_.data(); }  // [max_rows]
  const float* scales() const { return scales_.data(); }

 private:
  int64_t stride_;
  HugeBuffer memory_;
  std::vector<float> scales_;
};

}  // namespace chairlift
