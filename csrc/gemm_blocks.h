// How a GEMM kernel goes through the blocks of rows and panels that fall to its member. For
// gemm_isa.cpp.
#pragma once

#include "gemm.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// Rows [first_row, end_row) times one panel; `ahead` is where weights will be read afterwards.
struct GemmBlock {
  int first_row, end_row, panel;
  const std::byte* ahead;
};

// Calls body(block) for this member's blocks, mostly those of the same rows one after another. All
// but the last rows' have the same number of rows: a multiple of kRowUnit, as max_rows is.
template <int kRowUnit, class Body>
static CHAIRLIFT_INLINE void for_each_block(const GemmCall& call, int max_rows, Body body) {
  const PackedMatrix& weights = *call.weights;
  const int num_panels = weights.num_panels();
  const int row_blocks = (call.num_rows + max_rows - 1) / max_rows;
  const int rows =
      static_cast<int>(round_up((call.num_rows + row_blocks - 1) / row_blocks, kRowUnit));
  call.work.begin(row_blocks * num_panels);
  for (int item = call.work.take(); item >= 0; item = call.work.take()) {
    const int first_row = item / num_panels * rows;
    if (first_row >= call.num_rows) continue;  // rounded up, the last block may have none left
    const int end_row = first_row + rows < call.num_rows ? first_row + rows : call.num_rows;
    const int next = call.work.likely_next();
    const std::byte* ahead = next < 0 && call.next_weights != nullptr
                                 ? call.next_weights
                                 : weights.panel((next < 0 ? item + 1 : next) % num_panels);
    body(GemmBlock{first_row, end_row, item % num_panels, ahead});
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
