// Rows times a packed weight matrix, with the work that follows fused into the end.
//
// Each output element is one chain of additions over K, held in registers (or a tile) from the
// first to the last step. Its bits depend on the row, the weights and the instruction set level,
// never on how many rows there are, where the row lies or which thread computes it.
#pragma once

#include <cstdint>

#include "isa.h"
#include "packed_matrix.h"
#include "shared_work.h"

namespace chairlift {

enum class Epilogue {
  store,     // out = y + bias                float32
  add,       // out += y + bias               float32
  silu_mul,  // out = silu(gate) * up         compute dtype (of int8 weights: bfloat16); panels hold
             //                               16 gates and 16 ups
};

// Y = X W^T, as one member of the team is called for its part. All pointers are borrowed.
struct GemmCall {
  // [num_rows, input_stride] compute dtype, or, for int8 weights, QuantisedRows with the flip
  // GemmKernels asks for; 64-byte aligned rows. Memory up to the next multiple of kRowPadding rows
  // is read (its values do not matter), and so are the columns up to padded_in, which must be
  // finite.
  const std::byte* input;
  int64_t input_stride;  // elements
  const float* input_scales;  // [num_rows] for int8 weights, else null
  int num_rows;
  const PackedMatrix* weights;
  MemberWork work;  // a phase of its own: the members deal out blocks of rows and panels
  Epilogue epilogue;
  const float* bias;  // [num_panels * 32], or null
  void* out;          // [num_rows, out_stride]
  int64_t out_stride; // elements
  int out_columns;    // of a row; those behind are left alone
  // Where this member will read weights after this, or null: fetched towards the cache at the end.
  const std::byte* next_weights;
  std::byte* scratch; // gemm_scratch_bytes(padded_in) of this member's own
};

constexpr int kRowPadding = 32;
constexpr int kMaxRowsPerChunk = 16;
constexpr size_t kGemmScratchBytes = size_t(1) << 20;
constexpr size_t kMinExpandedBytes = 16384;

using GemmFunction = void (*)(const GemmCall& call);

// One function for each format of weights.
struct GemmKernels {
  GemmFunction float32;
  GemmFunction bfloat16;
  GemmFunction int8;
  uint8_t int8_input_flip;  // 0x80 where the level's dot product wants unsigned inputs, else 0
  GemmFunction q4_0;
  GemmFunction q4_1;
  GemmFunction q8_0;
  GemmFunction q4_k;
  GemmFunction q6_k;

  GemmFunction of(WeightFormat format) const {
    switch (format) {
      case WeightFormat::float32:
        return float32;
      case WeightFormat::bfloat16:
        return bfloat16;
      case WeightFormat::int8:
        return int8;
      case WeightFormat::q4_0:
        return q4_0;
      case WeightFormat::q4_1:
        return q4_1;
      case WeightFormat::q8_0:
        return q8_0;
      case WeightFormat::q4_k:
        return q4_k;
      case WeightFormat::q6_k:
        return q6_k;
    }
    return nullptr;
  }
};

CHAIRLIFT_DECLARE_KERNELS(GemmKernels, gemm_kernels)

// Bytes of GemmCall::scratch that rows of `padded_in` columns need. Behind them is room for weights
// expanded to bfloat16: kMinExpandedBytes and two panels at least.
constexpr size_t gemm_row_scratch_bytes(int64_t padded_in) {
  return kGemmScratchBytes + size_t(4) * static_cast<size_t>(padded_in) * kMaxRowsPerChunk;
}

// Bytes of GemmCall::scratch for inputs of up to `max_padded_in` columns.
constexpr size_t gemm_scratch_bytes(int64_t max_padded_in) {
  const size_t panel = feature_bytes(WeightFormat::bfloat16, max_padded_in) * kPanelFeatures;
  const size_t expanded = 2 * panel < kMinExpandedBytes ? kMinExpandedBytes : 2 * panel;
  return gemm_row_scratch_bytes(max_padded_in) + expanded;
}

}  // namespace chairlift
