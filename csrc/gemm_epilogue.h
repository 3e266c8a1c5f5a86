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

#if defined(__AVX512F__)
// silu, relative error below 1.4e-4: little where the result is rounded to bfloat16 (2e-3).
// 2^power is a minimax polynomial (error 7.5e-5) of the fraction in [0, 1), the reciprocal an
// estimate (6.1e-5). A power that overflows gives a product of zero.
static CHAIRLIFT_INLINE F32x16 coarse_silu(F32x16 x) {
  const F32x16 power = mul(x, broadcast(-1.44269504088896341f));
  const F32x16 fraction = _mm512_reduce_ps(power, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  F32x16 p = broadcast(0x1.3f96a4p-4f);
  p = fmadd(p, fraction, broadcast(0x1.cefc4cp-3f));
  p = fmadd(p, fraction, broadcast(0x1.64444cp-1f));
  p = fmadd(p, fraction, broadcast(0x1.fff632p-1f));
  p = _mm512_scalef_ps(p, power);  // by 2^floor(power)
  return mul(x, _mm512_rcp14_ps(add(broadcast(1.0f), p)));
}
#endif

// As precise as a result of type Out can tell.
template <class Out>
static CHAIRLIFT_INLINE F32x16 silu_for(F32x16 x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Out, bf16>) return coarse_silu(x);
#endif
  return silu(x);
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
    store_from_f32(out, mul(silu_for<Out>(first), second));
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
