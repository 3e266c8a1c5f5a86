// GEMM over weights kept as in a GGUF file, on vector registers: a panel is expanded into the
// caches and multiplied there by the bfloat16 kernel. For gemm_file_isa.cpp.
#pragma once

#include "file_blocks_expand.h"
#include "gemm_vector.h"

namespace chairlift::CHAIRLIFT_ISA {

#if defined(__AVX512BF16__)
using ExpandedWeights = Bf16DotWeights;
#else
using ExpandedWeights = Bf16WidenedWeights;
#endif

template <WeightFormat kFormat>
struct FileWeights : ExpandedWeights {
  static __attribute__((noinline)) const std::byte* panel(const GemmCall& call, int index) {
    const PackedMatrix& w = *call.weights;
    std::byte* expanded = call.scratch + gemm_row_scratch_bytes(w.padded_in());
    BlockCursor<kFormat> cursor(w.panel(index));
    std::byte* to = expanded;
    for (int k = 0; k < w.in_features; k += kFileBlock) {
      expand_to_step(cursor, to);
      cursor.advance();
      to += kExpandedBlockBytes;
    }
    return expanded;
  }
};

template <WeightFormat kFormat>
static void gemm_on_file_blocks(const GemmCall& call) {
  gemm_on_vectors<FileWeights<kFormat>>(call);
}

}  // namespace chairlift::CHAIRLIFT_ISA
