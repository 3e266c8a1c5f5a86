// Loops of nothing but multiply-adds, with sums in registers: what the arithmetic of a level can do at most.
#pragma once

#include <cstdint>

#include "isa.h"

namespace chairlift {

// Each runs a number of rounds and returns the operations done (a multiply and an add are two).
struct PeakKernels {
  int64_t (*float32)(int64_t rounds);
  int64_t (*bfloat16)(int64_t rounds);  // as the level's bfloat16 products are computed
  int64_t (*int8)(int64_t rounds);
};

CHAIRLIFT_DECLARE_KERNELS(PeakKernels, peak_kernels)

}  // namespace chairlift
