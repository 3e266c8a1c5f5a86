// Finishing rows between tile instructions. For gemm_amx.h.
//
// Where a core's tile unit is in its slow state, what lies between tile instructions decides how
// fast they go: short independent pieces of work hide them nearly whole, a long chain of dependent
// instructions adds its length to the step.
#pragma once

#include "gemm_epilogue.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kStages = 8;  // of a step; as many as it has tile instructions

// Rows of gates and ups, kRows at once: each stage does a little for all of them. Results are those
// of PendingBlock::finish.
template <class Block, int kRows>
class StagedRows {
 public:
  template <int kStage>
  CHAIRLIFT_INLINE void stage(Block& block) {
#pragma GCC unroll 4
    for (int row = 0; row < kRows; row++) {
      if constexpr (kStage == 0) {
        silu_[row].begin(block.product(row, 0));
      } else if constexpr (kStage == kStages - 1) {
        block.put(row, mul(silu_[row].value(), up_[row]));
      } else {
        if constexpr (kStage == 1) {
          up_[row] = block.product(row, 1);
          asm volatile("" : "+v"(up_[row]));  // computed here, not where it is used
        }
        silu_[row].template step<kStage - 1>();
      }
    }
    if constexpr (kStage == kStages - 1) block.skip(kRows);
  }

 private:
  static_assert(CoarseSilu::kSteps == kStages - 2);

  CoarseSilu silu_[kRows];
  F32x16 up_[kRows];
};

// Finishes kRows rows of a block in the kStages stages of each step.
template <class Block, int kRows>
class RowFinisher {
 public:
  explicit RowFinisher(const Block& block) : block_(block) {}

  template <int kStage>
  CHAIRLIFT_INLINE void stage() {
    if constexpr (!Block::kGated) {
      block_.template finish_part<kRows, kStage, kStages>();
    } else {
      if constexpr (kStage == 0) enough_ = block_.num_left() >= kRows;
      if (enough_) {
        staged_.template stage<kStage>(block_);
      } else if constexpr (kStage == 0) {
        block_.template finish<1>();
      }
    }
  }
  CHAIRLIFT_INLINE void finish_all() { block_.finish_all(); }

 private:
  Block block_;
  StagedRows<Block, kRows> staged_;
  bool enough_ = false;
};

}  // namespace chairlift::CHAIRLIFT_ISA
