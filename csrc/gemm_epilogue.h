// What happens to finished sums of a GEMM block before they leave the core. For gemm_isa.cpp.
#pragma once

#include "gemm.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

static CHAIRLIFT_INLINE F32x16 silu(F32x16 x) {
  return div(x, add(broadcast(1.0f), exp(sub(zero(), x))));
}

template <bool kAdd>
static CHAIRLIFT_INLINE void finish_sixteen(float* out, F32x16 y, int columns) {
  if (columns >= kLanes) {
    store(out, kAdd ? add(load(out), y) : y);
  } else if (columns > 0) {
    store_partial(out, kAdd ? add(load_partial(out, columns), y) : y, columns);
  }
}

template <bool kAdd>
static CHAIRLIFT_INLINE void finish_plain(const GemmCall& call, const float* block, int first_row,
                                          int num_rows, int panel) {
  const int column = panel * kPanelFeatures;
  const F32x16 bias0 = call.bias ? load(call.bias + column) : zero();
  const F32x16 bias1 = call.bias ? load(call.bias + column + kLanes) : zero();
  for (int r = 0; r < num_rows; r++) {
    float* out = static_cast<float*>(call.out) + (first_row + r) * call.out_stride + column;
    const float* y = block + r * kPanelFeatures;
    finish_sixteen<kAdd>(out, add(load(y), bias0), call.out_columns - column);
    finish_sixteen<kAdd>(out + kLanes, add(load(y + kLanes), bias1),
                         call.out_columns - column - kLanes);
  }
}

template <class Out>
static CHAIRLIFT_INLINE void finish_silu_mul(const GemmCall& call, const float* block,
                                             int first_row, int num_rows, int panel) {
  for (int r = 0; r < num_rows; r++) {
    const float* y = block + r * kPanelFeatures;
    Out* out = static_cast<Out*>(call.out) + (first_row + r) * call.out_stride + panel * kLanes;
    store_from_f32(out, mul(silu(load(y)), load(y + kLanes)));
  }
}

// block: [num_rows][32] sums of panel `panel`, rows first_row onwards. Out: compute dtype.
template <class Out>
static inline void finish_block(const GemmCall& call, const float* block, int first_row,
                                int num_rows, int panel) {
  switch (call.epilogue) {
    case Epilogue::store:
      return finish_plain<false>(call, block, first_row, num_rows, panel);
    case Epilogue::add:
      return finish_plain<true>(call, block, first_row, num_rows, panel);
    case Epilogue::silu_mul:
      return finish_silu_mul<Out>(call, block, first_row, num_rows, panel);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
