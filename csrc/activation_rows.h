// Activations of a batch: a row per token, in float32 or the compute dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gemm.h"
#include "huge_buffer.h"
#include "kv_cache.h"

namespace chairlift {

// float32 or bfloat16. Throws std::invalid_argument for any other name.
ElementType parse_element_type(std::string_view name);

// Rows of one kind of activation, 64-byte aligned, with room for GEMM's row padding.
class ActivationRows {
 public:
  // `columns` are rounded up to 32. Rows start an odd number of cache lines apart: at a power of
  // two the rows of a tile would compete for the same few cache sets.
  ActivationRows(int max_rows, int columns, ElementType type);
  std::byte* row(int64_t index) const { return memory_.data() + index * stride_ * element_bytes_; }
  float* float_row(int64_t index) const { return reinterpret_cast<float*>(row(index)); }
  int64_t stride() const { return stride_; }  // elements
  size_t bytes() const { return memory_.bytes(); }
  ElementType type() const {
    return element_bytes_ == 4 ? ElementType::float32 : ElementType::bfloat16;
  }

 private:
  int64_t element_bytes_;
  int64_t stride_;
  HugeBuffer memory_;
};

}  // namespace chairlift
