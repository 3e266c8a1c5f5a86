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
// In steps, so that several can advance between other instructions: the compiler leaves each where
// it is written.
class CoarseSilu {
 public:
  static constexpr int kSteps = 6;

  CHAIRLIFT_INLINE void begin(F32x16 x) {
    x_ = x;
    keep(x_);
  }
  template <int kStep>
  CHAIRLIFT_INLINE void step() {
    if constexpr (kStep == 0) {
      power_ = mul(x_, broadcast(-1.44269504088896341f));
      keep(power_);
    } else if constexpr (kStep == 1) {
      fraction_ = _mm512_reduce_ps(power_, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
      p_ = fmadd(broadcast(0x1.3f96a4p-4f), fraction_, broadcast(0x1.cefc4cp-3f));
      keep(p_);
    } else if constexpr (kStep == 2) {
      p_ = fmadd(p_, fraction_, broadcast(0x1.64444cp-1f));
      keep(p_);
    } else if constexpr (kStep == 3) {
      p_ = fmadd(p_, fraction_, broadcast(0x1.fff632p-1f));
      keep(p_);
    } else if constexpr (kStep == 4) {
      p_ = add(broadcast(1.0f), _mm512_scalef_ps(p_, power_));  // by 2^floor(power)
      keep(p_);
    } else {
      x_ = mul(x_, _mm512_rcp14_ps(p_));
      keep(x_);
    }
  }
  CHAIRLIFT_INLINE F32x16 value() const { return x_; }

 private:
  static CHAIRLIFT_INLINE void keep(F32x16& v) { asm volatile("" : "+v"(v)); }

  F32x16 x_, power_, fraction_, p_;
};

static CHAIRLIFT_INLINE F32x16 coarse_silu(F32x16 x) {
  CoarseSilu silu;
  silu.begin(x);
  silu.step<0>();
  silu.step<1>();
  silu.step<2>();
  silu.step<3>();
  silu.step<4>();
  silu.step<5>();
  return silu.value();
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

// How the sums of 16 features of a row become the product: as they are, ...
struct FloatSums {
  using Element = float;

  FloatSums() = default;
  FloatSums(const GemmCall& /*call*/, int /*first_row*/, int /*panel*/) {}
  static CHAIRLIFT_INLINE void fetch(const GemmCall& /*call*/, int /*panel*/) {}
  // `half`: the features' place in the panel. `row`: counted from the first of the block.
  CHAIRLIFT_INLINE F32x16 product(const float* sums, int /*row*/, int /*half*/) const {
    return load(sums);
  }
};

// ... or as sums of int8 products, scaled.
template <bool kUnsignedInputs>
struct Int8Sums {
  using Element = int32_t;

  Int8Sums() = default;
  Int8Sums(const GemmCall& call, int first_row, int panel)
      : features_(&call.weights->int8_scales(panel)), rows_(call.input_scales + first_row) {}
  // Kernels fetch the weights of panels ahead, but not what lies behind them.
  static CHAIRLIFT_INLINE void fetch(const GemmCall& call, int panel) {
    const std::byte* scales = reinterpret_cast<const std::byte*>(&call.weights->int8_scales(panel));
    for (size_t at = 0; at < sizeof(Int8PanelScales); at += 64) __builtin_prefetch(scales + at);
  }
  CHAIRLIFT_INLINE F32x16 product(const int32_t* sums, int row, int half) const {
    U32x16 sum = load_words(sums);
    if constexpr (kUnsignedInputs) {
      sum = add_words(sum, load_words(features_->correction + half * kLanes));
    }
    const F32x16 scale = mul(load(features_->scale + half * kLanes), broadcast(rows_[row]));
    return mul(to_floats(sum), scale);
  }

 private:
  const Int8PanelScales* features_ = nullptr;
  const float* rows_ = nullptr;
};

// Sums of some rows of one panel, on their way out a few rows at a time. Out: compute dtype.
template <Epilogue kEpilogue, class Out, class Sums = FloatSums>
class PendingBlock {
 public:
  static constexpr bool kGated = kEpilogue == Epilogue::silu_mul;

 private:
  static constexpr int kColumns = kGated ? kLanes : kPanelFeatures;  // that a panel becomes
  using Result = std::conditional_t<kGated, Out, float>;

 public:
  using Element = typename Sums::Element;

  PendingBlock() = default;  // of no rows
  // `sums`: [end_row - first_row][32]
  PendingBlock(const GemmCall& call, const Element* sums, int first_row, int end_row, int panel)
      : sums_of_(call, first_row, panel),
        sums_(sums),
        num_rows_(end_row - first_row),
        bias_(call.bias == nullptr ? nullptr : call.bias + panel * kPanelFeatures),
        columns_(call.out_columns - panel * kPanelFeatures),
        out_stride_(call.out_stride),
        out_(static_cast<Result*>(call.out) + first_row * out_stride_ + panel * kColumns) {}

  // Finishes the next kRows, or as many as are left.
  template <int kRows>
  CHAIRLIFT_INLINE void finish() {
    if constexpr (kRows == 1) {
      if (next_row_ < num_rows_) finish_one();
    } else {
      if (next_row_ + kRows > num_rows_) return finish_all();
#pragma GCC unroll 4
      for (int i = 0; i < kRows; i++) finish_one();
    }
  }
  // The same in kParts calls, one for each part.
  template <int kRows, int kPart, int kParts>
  CHAIRLIFT_INLINE void finish_part() {
    finish<kRows * (kPart + 1) / kParts - kRows * kPart / kParts>();
  }
  CHAIRLIFT_INLINE void finish_all() {
    while (next_row_ < num_rows_) finish_one();
  }

  // The same from outside, for the rows that come next (`row`: which of them): the products of half
  // a panel, the result, and that so many rows are finished.
  CHAIRLIFT_INLINE int num_left() const { return num_rows_ - next_row_; }
  CHAIRLIFT_INLINE F32x16 product(int row, int half) const {
    return sums_of_.product(sums_ + row * kPanelFeatures + half * kLanes, next_row_ + row, half);
  }
  CHAIRLIFT_INLINE void put(int row, F32x16 y) { store_from_f32(out_ + row * out_stride_, y); }
  CHAIRLIFT_INLINE void skip(int rows) {
    sums_ += rows * kPanelFeatures;
    out_ += rows * out_stride_;
    next_row_ += rows;
  }

  // Asks for the cache lines that rows will go to, a few rows (and some behind the last) a call.
  class OutputFetch {
   public:
    explicit OutputFetch(const PendingBlock& block)
        : at_(block.out_), stride_(block.out_stride_), num_rows_(block.num_rows_) {}

    template <int kRows>
    CHAIRLIFT_INLINE void fetch() {
      if (num_rows_ <= 0) return;
      num_rows_ -= kRows;
#pragma GCC unroll 4
      for (int i = 0; i < kRows; i++) {
        __builtin_prefetch(at_, 1);
        if constexpr (sizeof(Result) * kColumns > 64) __builtin_prefetch(at_ + kColumns / 2, 1);
        at_ += stride_;
        asm("" : "+r"(at_));  // or g++ keeps a place for each row of a call, and spills them
      }
    }

   private:
    const Result* at_;
    int64_t stride_;
    int num_rows_;
  };

 private:
  CHAIRLIFT_INLINE void finish_one() {
    const F32x16 first = product(0, 0), second = product(0, 1);
    if constexpr (kGated) {
      put(0, mul(silu_for<Out>(first), second));
    } else {
      finish_sixteen(0, first);
      finish_sixteen(kLanes, second);
    }
    skip(1);
  }

  // Columns that the row does not have are left alone.
  CHAIRLIFT_INLINE void finish_sixteen(int column, F32x16 y) {
    if (bias_ != nullptr) y = add(y, load(bias_ + column));
    float* out = out_ + column;
    const int columns = columns_ - column;
    if (columns >= kLanes) {
      store(out, kEpilogue == Epilogue::add ? add(load(out), y) : y);
    } else if (columns > 0) {
      store_partial(out, kEpilogue == Epilogue::add ? add(load_partial(out, columns), y) : y,
                    columns);
    }
  }

  Sums sums_of_;
  const Element* sums_ = nullptr;
  int next_row_ = 0, num_rows_ = 0;
  const float* bias_ = nullptr;
  int columns_ = 0;
  int64_t out_stride_ = 0;
  Result* out_ = nullptr;
};

}  // namespace chairlift::CHAIRLIFT_ISA
