// simd.h's vectors with GCC's vector extension: four 16-byte registers each, which is SSE2 on
// x86-64 and NEON on ARM. Included by simd.h only.
#pragma once

#include "half.h"

namespace chairlift::CHAIRLIFT_ISA {

typedef float F32x4 __attribute__((vector_size(16)));
typedef int32_t I32x4 __attribute__((vector_size(16)));
typedef uint32_t U32x4 __attribute__((vector_size(16)));

struct F32x16 {
  F32x4 part[4];
};
struct Mask16 {
  I32x4 part[4];  // -1 or 0
};
// 16 pairs of bfloat16, or any 16 words of 32 bits.
struct U32x16 {
  U32x4 part[4];
};

template <class Result, class Part>
static CHAIRLIFT_INLINE Result each_part(Part&& part) {
  return Result{{part(0), part(1), part(2), part(3)}};
}

static CHAIRLIFT_INLINE F32x16 broadcast(float v) {
  return each_part<F32x16>([&](int) { return F32x4{v, v, v, v}; });
}
static CHAIRLIFT_INLINE F32x16 zero() { return broadcast(0.0f); }
static CHAIRLIFT_INLINE F32x16 load(const float* p) {
  F32x16 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
static CHAIRLIFT_INLINE void store(float* p, F32x16 v) { std::memcpy(p, &v, sizeof(v)); }

static CHAIRLIFT_INLINE F32x16 add(F32x16 a, F32x16 b) {
  return each_part<F32x16>([&](int i) { return a.part[i] + b.part[i]; });
}
static CHAIRLIFT_INLINE F32x16 sub(F32x16 a, F32x16 b) {
  return each_part<F32x16>([&](int i) { return a.part[i] - b.part[i]; });
}
static CHAIRLIFT_INLINE F32x16 mul(F32x16 a, F32x16 b) {
  return each_part<F32x16>([&](int i) { return a.part[i] * b.part[i]; });
}
static CHAIRLIFT_INLINE F32x16 div(F32x16 a, F32x16 b) {
  return each_part<F32x16>([&](int i) { return a.part[i] / b.part[i]; });
}
// 1 / a within 1 ulp or so, for |a| in [2^-125, 2^125].
static CHAIRLIFT_INLINE F32x16 reciprocal(F32x16 a) { return div(broadcast(1.0f), a); }
// a * b + c; rounded once where the baseline machine has such an instruction.
static CHAIRLIFT_INLINE F32x16 fmadd(F32x16 a, F32x16 b, F32x16 c) {
#if defined(__ARM_FEATURE_FMA)
  return each_part<F32x16>([&](int i) {
    F32x4 r;
    for (int j = 0; j < 4; j++) r[j] = __builtin_fmaf(a.part[i][j], b.part[i][j], c.part[i][j]);
    return r;
  });
#else
  return add(mul(a, b), c);
#endif
}
// If either lane is NaN the result is b's lane.
static CHAIRLIFT_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return each_part<F32x16>(
      [&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
}
static CHAIRLIFT_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return each_part<F32x16>(
      [&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
}

static CHAIRLIFT_INLINE Mask16 less(F32x16 a, F32x16 b) {
  return each_part<Mask16>([&](int i) { return a.part[i] < b.part[i]; });
}
static CHAIRLIFT_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return each_part<Mask16>([&](int i) { return a.part[i] == b.part[i]; });
}
static CHAIRLIFT_INLINE Mask16 is_nan(F32x16 a) {
  return each_part<Mask16>([&](int i) { return a.part[i] != a.part[i]; });
}
// Lanes below `count`; any int.
static CHAIRLIFT_INLINE Mask16 first_lanes(int count) {
  return each_part<Mask16>([&](int i) {
    return I32x4{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3} < I32x4{count, count, count, count};
  });
}
static CHAIRLIFT_INLINE Mask16 mask_and(Mask16 a, Mask16 b) {
  return each_part<Mask16>([&](int i) { return a.part[i] & b.part[i]; });
}
static CHAIRLIFT_INLINE Mask16 mask_or(Mask16 a, Mask16 b) {
  return each_part<Mask16>([&](int i) { return a.part[i] | b.part[i]; });
}
static CHAIRLIFT_INLINE Mask16 mask_not(Mask16 a) {
  return each_part<Mask16>([&](int i) { return ~a.part[i]; });
}
// Bit i is lane i.
static CHAIRLIFT_INLINE uint32_t mask_bits(Mask16 m) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; i++) bits |= (m.part[i / 4][i % 4] != 0 ? 1u : 0u) << i;
  return bits;
}
// m ? a : b, lane by lane; the other side's NaN never leaks.
static CHAIRLIFT_INLINE F32x16 select(Mask16 m, F32x16 a, F32x16 b) {
  return each_part<F32x16>([&](int i) { return m.part[i] ? a.part[i] : b.part[i]; });
}

// A fixed tree: halves are added until one lane is left, on every level.
static CHAIRLIFT_INLINE float reduce_add(F32x16 v) {
  const F32x4 quarter = (v.part[0] + v.part[2]) + (v.part[1] + v.part[3]);
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}
static CHAIRLIFT_INLINE float reduce_max(F32x16 v) {
  float result = v.part[0][0];
  for (int i = 1; i < 16; i++) {
    const float x = v.part[i / 4][i % 4];
    result = result > x ? result : x;
  }
  return result;
}

// Exact for |v| < 2^22; adding 1.5 * 2^23 leaves no bits for a fraction.
static CHAIRLIFT_INLINE F32x16 round_to_int(F32x16 v) {
  const F32x16 magic = broadcast(12582912.0f);
  return sub(add(v, magic), magic);
}
// v * 2^whole, whole an integer in [-126, 128] and v in [1/2, 2].
static CHAIRLIFT_INLINE F32x16 scale_by_power_of_two(F32x16 v, F32x16 whole) {
  return each_part<F32x16>([&](int i) {
    const I32x4 biased = (__builtin_convertvector(whole.part[i], I32x4) + 127) << 23;
    return v.part[i] * reinterpret_cast<F32x4>(biased);
  });
}

// v with the lower bits of `biased` added to its exponent: v * 2^n where biased is 1.5 * 2^23 + n.
static CHAIRLIFT_INLINE F32x16 add_to_exponent(F32x16 v, F32x16 biased) {
  return each_part<F32x16>([&](int i) {
    const U32x4 shifted = reinterpret_cast<U32x4>(biased.part[i]) << 23;
    return reinterpret_cast<F32x4>(reinterpret_cast<U32x4>(v.part[i]) + shifted);
  });
}

static CHAIRLIFT_INLINE F32x16 load_bf16(const bf16* p) {
  U32x16 wide;
  for (int i = 0; i < 16; i++) wide.part[i / 4][i % 4] = static_cast<uint32_t>(p[i]) << 16;
  return each_part<F32x16>([&](int i) { return reinterpret_cast<F32x4>(wide.part[i]); });
}
// Rounds to nearest, ties to even.
static CHAIRLIFT_INLINE void store_bf16(bf16* p, F32x16 v) {
  for (int i = 0; i < 4; i++) {
    const U32x4 raw = reinterpret_cast<U32x4>(v.part[i]);
    const U32x4 rounded = raw + 0x7fffu + ((raw >> 16) & 1u);
    const U32x4 bits = (v.part[i] != v.part[i] ? raw | 0x400000u : rounded) >> 16;
    for (int j = 0; j < 4; j++) p[4 * i + j] = static_cast<bf16>(bits[j]);
  }
}

static CHAIRLIFT_INLINE U32x16 load_words(const void* p) {
  U32x16 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
// Widens 16 unsigned numbers of 16 bits.
static CHAIRLIFT_INLINE U32x16 widen_halves(const void* p) {
  uint16_t halves[16];
  std::memcpy(halves, p, sizeof(halves));
  return each_part<U32x16>([&](int i) {
    const uint16_t* part = halves + 4 * i;
    return U32x4{part[0], part[1], part[2], part[3]};
  });
}
static CHAIRLIFT_INLINE U32x16 broadcast_word(uint32_t v) {
  return each_part<U32x16>([&](int) { return U32x4{v, v, v, v}; });
}
// The first / second bfloat16 of each pair.
static CHAIRLIFT_INLINE F32x16 first_of_pairs(U32x16 pairs) {
  return each_part<F32x16>([&](int i) { return reinterpret_cast<F32x4>(pairs.part[i] << 16); });
}
static CHAIRLIFT_INLINE F32x16 second_of_pairs(U32x16 pairs) {
  return each_part<F32x16>(
      [&](int i) { return reinterpret_cast<F32x4>(pairs.part[i] & 0xffff0000u); });
}
// c + a.first * b.first + a.second * b.second, with the level's own rounding in between.
static CHAIRLIFT_INLINE F32x16 dot_pairs(F32x16 c, U32x16 a, U32x16 b) {
  return fmadd(second_of_pairs(a), second_of_pairs(b),
               fmadd(first_of_pairs(a), first_of_pairs(b), c));
}

// Widens 16 half precision numbers.
static CHAIRLIFT_INLINE F32x16 load_f16(const void* p) {
  uint16_t halves[16];
  std::memcpy(halves, p, sizeof(halves));
  return each_part<F32x16>([&](int i) {
    F32x4 r;
    for (int j = 0; j < 4; j++) r[j] = half_to_float(halves[4 * i + j]);
    return r;
  });
}
// Widens 16 signed bytes.
static CHAIRLIFT_INLINE F32x16 load_int8(const void* p) {
  int8_t bytes[16];
  std::memcpy(bytes, p, sizeof(bytes));
  return each_part<F32x16>([&](int i) {
    const int8_t* part = bytes + 4 * i;
    return __builtin_convertvector((I32x4{part[0], part[1], part[2], part[3]}), F32x4);
  });
}
// Bits [kShift, kShift + 4) of each word, as a number of 0..15, plus kFirst.
template <int kShift, int kFirst>
static CHAIRLIFT_INLINE F32x16 nibbles(U32x16 words) {
  return each_part<F32x16>([&](int i) {
    const I32x4 low = reinterpret_cast<I32x4>(words.part[i] >> kShift & 15u);
    return __builtin_convertvector(low + kFirst, F32x4);
  });
}
// Rounds a and b as store_bf16 does: 32 numbers.
static CHAIRLIFT_INLINE void store_two_bf16(bf16* p, F32x16 a, F32x16 b) {
  store_bf16(p, a);
  store_bf16(p + 16, b);
}

// 32 words of 16 bits, four bits of which are an index.
struct WordIndices {
  uint16_t words[32];

  static CHAIRLIFT_INLINE WordIndices load(const void* p) {
    WordIndices indices;
    std::memcpy(indices.words, p, sizeof(indices.words));
    return indices;
  }
};
// Two tables of 16 numbers, rounded as store_bf16 does. store_...() writes the 32 bfloat16 that
// bits [kShift, kShift + 4) of the indices stand for in the first or second table.
class ValuePair {
 public:
  CHAIRLIFT_INLINE ValuePair(F32x16 first, F32x16 second) {
    store_bf16(values_, first);
    store_bf16(values_ + 16, second);
  }
  template <int kShift>
  CHAIRLIFT_INLINE void store_first(bf16* p, const WordIndices& at) const {
    for (int i = 0; i < 32; i++) p[i] = values_[at.words[i] >> kShift & 15];
  }
  template <int kShift>
  CHAIRLIFT_INLINE void store_second(bf16* p, const WordIndices& at) const {
    for (int i = 0; i < 32; i++) p[i] = values_[16 + (at.words[i] >> kShift & 15)];
  }

 private:
  bf16 values_[32];
};

// Lane i gets lane i ^ kDistance, a power of two.
template <int kDistance>
static CHAIRLIFT_INLINE F32x16 swap_lanes(F32x16 v) {
  return each_part<F32x16>([&](int i) {
    const F32x4 x = v.part[i ^ (kDistance / 4)];
    if constexpr (kDistance == 1) return F32x4{x[1], x[0], x[3], x[2]};
    if constexpr (kDistance == 2) return F32x4{x[2], x[3], x[0], x[1]};
    return x;
  });
}

static CHAIRLIFT_INLINE U32x16 zero_words() { return broadcast_word(0); }
static CHAIRLIFT_INLINE void store_words(void* p, U32x16 v) { std::memcpy(p, &v, sizeof(v)); }
static CHAIRLIFT_INLINE U32x16 add_words(U32x16 a, U32x16 b) {
  return each_part<U32x16>([&](int i) { return a.part[i] + b.part[i]; });
}
static CHAIRLIFT_INLINE U32x16 times_256(U32x16 v) {
  return each_part<U32x16>([&](int i) { return v.part[i] << 8; });
}
// Signed words as floats, rounded to nearest.
static CHAIRLIFT_INLINE F32x16 to_floats(U32x16 v) {
  return each_part<F32x16>([&](int i) {
    return __builtin_convertvector(reinterpret_cast<I32x4>(v.part[i]), F32x4);
  });
}
// Whole numbers in [-128, 127], each byte xored with `flip`.
static CHAIRLIFT_INLINE void store_bytes(int8_t* p, F32x16 whole, uint8_t flip) {
  for (int i = 0; i < 4; i++) {
    const I32x4 words = __builtin_convertvector(whole.part[i], I32x4);
    for (int j = 0; j < 4; j++) p[4 * i + j] = static_cast<int8_t>(words[j] ^ flip);
  }
}

typedef int16_t I16x8 __attribute__((vector_size(16)));

// Bytes 0 and 2 (1 and 3) of each word as two signed 16-bit numbers.
static CHAIRLIFT_INLINE U32x16 even_bytes(U32x16 v) {
  return each_part<U32x16>([&](int i) {
    return reinterpret_cast<U32x4>((reinterpret_cast<I16x8>(v.part[i]) << 8) >> 8);
  });
}
static CHAIRLIFT_INLINE U32x16 odd_bytes(U32x16 v) {
  return each_part<U32x16>(
      [&](int i) { return reinterpret_cast<U32x4>(reinterpret_cast<I16x8>(v.part[i]) >> 8); });
}
// c + a.lower * b.lower + a.upper * b.upper, of the signed halves of each word.
static CHAIRLIFT_INLINE U32x16 dot_halves(U32x16 c, U32x16 a, U32x16 b) {
  return each_part<U32x16>([&](int i) {
#if defined(__SSE2__)
    const auto sums = __builtin_ia32_pmaddwd128(reinterpret_cast<I16x8>(a.part[i]),
                                                reinterpret_cast<I16x8>(b.part[i]));
    return c.part[i] + reinterpret_cast<U32x4>(sums);
#else
    const I32x4 x = reinterpret_cast<I32x4>(a.part[i]), y = reinterpret_cast<I32x4>(b.part[i]);
    const I32x4 lower = ((x << 16) >> 16) * ((y << 16) >> 16);
    return c.part[i] + reinterpret_cast<U32x4>(lower + (x >> 16) * (y >> 16));
#endif
  });
}

// 16 times bits [kShift, kShift + 2) of each word.
template <int kShift>
static CHAIRLIFT_INLINE F32x16 sixteens(U32x16 words) {
  return each_part<F32x16>([&](int i) {
    const I32x4 low = reinterpret_cast<I32x4>(words.part[i] >> kShift & 3u);
    return __builtin_convertvector(low << 4, F32x4);
  });
}

// Transposes 16 rows of 16 words; strides in bytes.
static CHAIRLIFT_INLINE void transpose_words(const std::byte* from, int64_t from_stride,
                                             std::byte* to, int64_t to_stride) {
  for (int row = 0; row < 16; row++) {
    for (int i = 0; i < 16; i++) {
      std::memcpy(to + i * to_stride + 4 * row, from + row * from_stride + 4 * i, 4);
    }
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
