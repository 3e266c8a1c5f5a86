// What happens to finished sums of a GEMM block before they leave the core. For gemm_isa.cpp.
#pragma once

#include <type_traits>

#include "gemm.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// x / (1 + 2^(-x / ln 2)). The power is clamped to where it and the denominator are normal numbers;
// that changes results below 1e-35 only.
static CHAIRLIFT_INLINE F32x16 silu(F32x16 x) {
  const F32x16 power = mul(x, broadcast(-1.44269504088896341f));
  const F32x16 clamped = max(broadcast(-120.0f), min(broadcast(120.0f), power));
  return mul(x, reciprocal(add(broadcast(1.0f), exp2_of_normal(clamped))));
}

// out[0, columns) = y, or += y; columns may be more than 16.
template <Epilogue kEpilogue>
static CHAIRLIFT_INLINE void finish_sixteen(float* out, F32x16 y, int columns) {
  if (columns >= kLanes) {
    store(out, kEpilogue == Epilogue::add ? add(load(out), y) : y);
  } else if (columns > 0) {
    store_partial(out, kEpilogue == Epilogue::add ? add(load_partial(out, columns), y) : y,
                  columns);
  }
}

// y: [32] sums of one row and panel. Out: compute dtype.
template <Epilogue kEpilogue, class Out>
static CHAIRLIFT_INLINE void finish_row(const GemmCall& call, const float* y, int row, int panel) {
  F32x16 first = load(y), second = load(y + kLanes);
  if constexpr (kEpilogue == Epilogue::silu_mul) {
    Out* out = static_cast<Out*>(call.out) + row * call.out_stride + panel * kLanes;
    store_from_f32(out, mul(silu(first), second));
    return;
  }
  const int column = panel * kPanelFeatures;
  if (call.bias != nullptr) {
    first = add(first, load(call.bias + column));
    second = add(second, load(call.bias + column + kLanes));
  }
  float* out = static_cast<float*>(call.out) + row * call.out_stride + column;
  finish_sixteen<kEpilogue>(out, first, call.out_columns - column);
  finish_sixteen<kEpilogue>(out + kLanes, second, call.out_columns - column - kLanes);
}

// Sums of some rows of one panel, on their way out row by row.
template <Epilogue kEpilogue, class Out>
struct PendingBlock {
  float* sums = nullptr;  // [rows][32], of row `next_row` first
  int next_row = 0, end_row = 0, panel = 0;

  CHAIRLIFT_INLINE void finish_one(const GemmCall& call) {
    if (next_row == end_row) return;
    finish_row<kEpilogue, Out>(call, sums, next_row, panel);
    sums += kPanelFeatures;
    next_row++;
  }
  CHAIRLIFT_INLINE void finish_all(const GemmCall& call) {
    while (next_row != end_row) finish_one(call);
  }
  // Asks for the cache lines that finishing a row will write.
  CHAIRLIFT_INLINE void fetch_output(const GemmCall& call, int row) const {
    if (row >= end_row) return;
    constexpr bool kHalf = kEpilogue == Epilogue::silu_mul;
    using Element = std::conditional_t<kHalf, Out, float>;
    const Element* out = static_cast<const Element*>(call.out) + row * call.out_stride;
    __builtin_prefetch(out + panel * (kHalf ? kLanes : kPanelFeatures), 1);
    if constexpr (!kHalf) __builtin_prefetch(out + panel * kPanelFeatures + kLanes, 1);
  }
};

}  // namespace chairlift::CHAIRLIFT_ISA
