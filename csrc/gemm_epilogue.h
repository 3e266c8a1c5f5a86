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

// How the sums of 16 features of a row become the product: as they are, ...
struct FloatSums {
  using Element = float;
  static CHAIRLIFT_INLINE F32x16 product(const GemmCall&, const float* sums, int, int) {
    return load(sums);
  }
  static CHAIRLIFT_INLINE void fetch_scales(const GemmCall&, int) {}
};

// ... or as sums of int8 products, scaled. `feature` is the first of the 16.
template <bool kUnsignedInputs>
struct Int8Sums {
  using Element = int32_t;
  static CHAIRLIFT_INLINE F32x16 product(const GemmCall& call, const int32_t* sums, int row,
                                         int feature) {
    const Int8PanelScales& scales = call.weights->int8_scales(feature / kPanelFeatures);
    const int at = feature % kPanelFeatures;
    U32x16 sum = load_words(sums);
    if constexpr (kUnsignedInputs) sum = add_words(sum, load_words(scales.correction + at));
    const F32x16 scale = mul(load(scales.scale + at), broadcast(call.input_scales[row]));
    return mul(to_floats(sum), scale);
  }
  // Kernels fetch the weights of panels ahead, but not what lies behind them.
  static CHAIRLIFT_INLINE void fetch_scales(const GemmCall& call, int panel) {
    const std::byte* scales = reinterpret_cast<const std::byte*>(&call.weights->int8_scales(panel));
    for (size_t at = 0; at < sizeof(Int8PanelScales); at += 64) __builtin_prefetch(scales + at);
  }
};

// y: [32] sums of one row and panel. Out: compute dtype.
template <Epilogue kEpilogue, class Out, class Sums>
static CHAIRLIFT_INLINE void finish_row(const GemmCall& call, const typename Sums::Element* y,
                                        int row, int panel) {
  const int feature = panel * kPanelFeatures;
  F32x16 first = Sums::product(call, y, row, feature);
  F32x16 second = Sums::product(call, y + kLanes, row, feature + kLanes);
  if constexpr (kEpilogue == Epilogue::silu_mul) {
    Out* out = static_cast<Out*>(call.out) + row * call.out_stride + panel * kLanes;
    store_from_f32(out, mul(silu(first), second));
    return;
  }
  if (call.bias != nullptr) {
    first = add(first, load(call.bias + feature));
    second = add(second, load(call.bias + feature + kLanes));
  }
  float* out = static_cast<float*>(call.out) + row * call.out_stride + feature;
  finish_sixteen<kEpilogue>(out, first, call.out_columns - feature);
  finish_sixteen<kEpilogue>(out + kLanes, second, call.out_columns - feature - kLanes);
}

// Sums of some rows of one panel, on their way out row by row.
template <Epilogue kEpilogue, class Out, class Sums = FloatSums>
struct PendingBlock {
  typename Sums::Element* sums = nullptr;  // [rows][32], of row `next_row` first
  int next_row = 0, end_row = 0, panel = 0;

  CHAIRLIFT_INLINE void finish_one(const GemmCall& call) {
    if (next_row == end_row) return;
    finish_row<kEpilogue, Out, Sums>(call, sums, next_row, panel);
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
