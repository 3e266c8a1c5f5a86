// Work on single rows of activations: RMSNorm.
#pragma once

#include <cstdint>

#include "isa.h"

namespace chairlift {

// RMSNorm of one row: out_i = x_i / sqrt(mean(x^2) + eps) * weight_i, computed in float32.
// Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization".
struct RmsNormRow {
  const float* x;       // [padded] float32; zero behind `size`
  const float* weight;  // [padded] float32; zero behind `size`
  int64_t padded;       // multiple of 32
  int size;             // what the mean divides by
  float eps;
};

struct RowKernels {
  // `out` is [padded] in that type.
  void (*rms_norm_float32)(const RmsNormRow& row, float* out);
  void (*rms_norm_bfloat16)(const RmsNormRow& row, uint16_t* out);
};

CHAIRLIFT_DECLARE_KERNELS(RowKernels, row_kernels)

}  // namespace chairlift
