// Weight matrices in the layout the GEMM kernels stream through.
//
// A matrix [out_features, in_features] is cut into panels of 32 output features; a panel holds
// all of K, step by step, so that a thread's share of a matrix is one linear stream:
//
//     float32    [padded_in][32 features]
//     bfloat16   [padded_in / 2][32 features][2]     (AMX's B tile, and the paired dot product's)
//     int8       [padded_in / 4][32 features][4], Int8PanelScales      (the same for bytes)
//     q4_0 ...   [in / 32] blocks of 32 features     (GGUF's formats as they are: file_blocks.h)
//
// padded_in is in_features rounded up to one AMX tile: 64 of int8, else 32. The padding, and the
// features behind out_features in the last panel, are zero. An int8 feature is a QuantisedRow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dequant.h"
#include "kv_cache.h"
#include "quantised_rows.h"
#include "thread_team.h"

namespace chairlift {

constexpr int kPanelFeatures = 32;
constexpr int kHalfPanel = 16;  // features of one vector register, or one tile

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// What a packed matrix holds; each format has its own layout and GEMM kernel. Those of model files
// come last.
enum class WeightFormat { float32, bfloat16, int8, q4_0, q4_1, q8_0, q4_k, q6_k };

// The format of weights that are not quantised.
constexpr WeightFormat plain_format(ElementType type) {
  return type == ElementType::float32 ? WeightFormat::float32 : WeightFormat::bfloat16;
}

// Whether a matrix of this format keeps the values of a model file as they are.
constexpr bool is_file_format(WeightFormat format) {
  return format >= WeightFormat::q4_0;
}

// Bytes of `padded_in` (a multiple of 32; of 256 for q4_k and q6_k) weights of one feature.
constexpr size_t feature_bytes(WeightFormat format, int64_t padded_in) {
  const size_t blocks = static_cast<size_t>(padded_in) / 32;
  switch (format) {
    case WeightFormat::float32:
      return blocks * 128;
    case WeightFormat::bfloat16:
      return blocks * 64;
    case WeightFormat::int8:
      return blocks * 32;
    case WeightFormat::q4_0:
      return blocks * 18;
    case WeightFormat::q4_1:
      return blocks * 20;
    case WeightFormat::q8_0:
      return blocks * 34;
    case WeightFormat::q4_k:
      return blocks / 8 * 148;
    case WeightFormat::q6_k:
      return blocks / 8 * 210;
  }
  return 0;
}

// Behind the weights of an int8 panel, a number per feature.
struct Int8PanelScales {
  float scale[kPanelFeatures];  // y = scale * the row's scale * the sum of products
  int32_t correction[kPanelFeatures];  // added to sums of inputs that are 128 too large
};

// A packed matrix; the memory belongs to someone else.
struct PackedMatrix {
  WeightFormat format = WeightFormat::float32;
  int out_features = 0;
  int in_features = 0;
  std::byte* data = nullptr;  // zero before packing

  int64_t padded_in() const {
    return round_up(in_features, format == WeightFormat::int8 ? kRotationBlock : 32);
  }
  int num_panels() const { return static_cast<int>(round_up(out_features, kPanelFeatures)) / 32; }
  size_t panel_weight_bytes() const {
    return feature_bytes(format, padded_in()) * kPanelFeatures;
  }
  size_t panel_bytes() const {
    return panel_weight_bytes() + (format == WeightFormat::int8 ? sizeof(Int8PanelScales) : 0);
  }
  size_t bytes() const { return panel_bytes() * static_cast<size_t>(num_panels()); }
  std::byte* panel(int index) const { return data + panel_bytes() * static_cast<size_t>(index); }
  Int8PanelScales& int8_scales(int index) const {
    return *reinterpret_cast<Int8PanelScales*>(panel(index) + panel_weight_bytes());
  }
};

// Which features of a matrix the rows of one tensor become.
struct FeatureRange {
  int first = 0;  // feature of row 0
  // 1: consecutive features. 2: halves of panels, for gate (first = 0) and up (first = 16), so
  // that 16 features of both lie side by side: row r is feature r / 16 * 32 + first + r % 16.
  int panel_stride = 1;

  int feature_of(int row) const {
    if (panel_stride == 1) return first + row;
    return row / kHalfPanel * kPanelFeatures + first + row % kHalfPanel;
  }
};

// Rows of a weight tensor as they lie in the model file.
struct SourceRows {
  TensorType type;
  const uint8_t* data;
  int num_rows;
  int num_cols;
  // 0, or: rows of each of that many heads alternate between the two halves of the rotation.
  int interleaved_heads = 0;

  // Source row of destination row `row`: in a head of d rows, row j * d / 2 + i comes from 2 i + j.
  int source_row(int row) const {
    if (interleaved_heads == 0) return row;
    const int dim = num_rows / interleaved_heads, half = dim / 2;
    const int in_head = row % dim;
    return row - in_head + 2 * (in_head % half) + in_head / half;
  }
};

// Dequantises all rows and writes them to their places, shared out over the team.
void pack_rows(const SourceRows& source, FeatureRange range, const PackedMatrix& matrix,
               ThreadTeam& team);

// Widens in_features weights of one feature to float32: a row of the original matrix, as far as
// the format kept it.
void unpack_row(const PackedMatrix& matrix, int feature, float* out);

}  // namespace chairlift
