// simd.h's vectors on AVX2 with FMA: two registers each. Included by simd.h only.
#pragma once

namespace chairlift::CHAIRLIFT_ISA {

struct F32x16 {
  __m256 lo, hi;
};
struct Mask16 {
  __m256 lo, hi;  // all bits of a lane, or none
};
// 16 pairs of bfloat16, or any 16 words of 32 bits.
struct U32x16 {
  __m256i lo, hi;
};

static CHAIRLIFT_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static CHAIRLIFT_INLINE F32x16 broadcast(float v) {
  return {_mm256_set1_ps(v), _mm256_set1_ps(v)};
}
static CHAIRLIFT_INLINE F32x16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static CHAIRLIFT_INLINE void store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}

static CHAIRLIFT_INLINE F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
// 1 / a within 1 ulp or so, for |a| in [2^-125, 2^125].
static CHAIRLIFT_INLINE F32x16 reciprocal(F32x16 a) { return div(broadcast(1.0f), a); }
// a * b + c, rounded once.
static CHAIRLIFT_INLINE F32x16 fmadd(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// If either lane is NaN the result is b's lane.
static CHAIRLIFT_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

static CHAIRLIFT_INLINE Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
static CHAIRLIFT_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
static CHAIRLIFT_INLINE Mask16 is_nan(F32x16 a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
// Lanes below `count`; any int.
static CHAIRLIFT_INLINE Mask16 first_lanes(int count) {
  const __m256i n = _mm256_set1_epi32(count);
  const __m256i lo = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i hi = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(n, lo)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(n, hi))};
}
static CHAIRLIFT_INLINE Mask16 mask_and(Mask16 a, Mask16 b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE Mask16 mask_or(Mask16 a, Mask16 b) {
  return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE Mask16 mask_not(Mask16 a) {
  const __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return {_mm256_xor_ps(a.lo, ones), _mm256_xor_ps(a.hi, ones)};
}
// Bit i is lane i.
static CHAIRLIFT_INLINE uint32_t mask_bits(Mask16 m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) |
         static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
// m ? a : b, lane by lane; the other side's NaN never leaks.
static CHAIRLIFT_INLINE F32x16 select(Mask16 m, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

// A fixed tree: halves are added until one lane is left, on every level.
static CHAIRLIFT_INLINE float reduce_add(F32x16 v) {
  const __m256 half = _mm256_add_ps(v.lo, v.hi);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 eighth = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(eighth, _mm_movehdup_ps(eighth)));
}
static CHAIRLIFT_INLINE float reduce_max(F32x16 v) {
  const __m256 half = _mm256_max_ps(v.lo, v.hi);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 eighth = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(eighth, _mm_movehdup_ps(eighth)));
}

static CHAIRLIFT_INLINE F32x16 round_to_int(F32x16 v) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(v.lo, kNearest), _mm256_round_ps(v.hi, kNearest)};
}
// v * 2^whole, whole an integer in [-126, 128] and v in [1/2, 2].
static CHAIRLIFT_INLINE F32x16 scale_by_power_of_two(F32x16 v, F32x16 whole) {
  const auto power = [](__m256 n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  };
  return {_mm256_mul_ps(v.lo, power(whole.lo)), _mm256_mul_ps(v.hi, power(whole.hi))};
}

// v with the lower bits of `biased` added to its exponent: v * 2^n where biased is 1.5 * 2^23 + n.
static CHAIRLIFT_INLINE F32x16 add_to_exponent(F32x16 v, F32x16 biased) {
  const auto sum = [](__m256 a, __m256 b) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(b), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shifted));
  };
  return {sum(v.lo, biased.lo), sum(v.hi, biased.hi)};
}

static CHAIRLIFT_INLINE F32x16 load_bf16(const bf16* p) {
  const auto widen = [](const bf16* q) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  };
  return {widen(p), widen(p + 8)};
}
// 16 bfloat16, rounded to nearest, ties to even.
static CHAIRLIFT_INLINE __m256i round_to_bf16(F32x16 v) {
  const auto narrow = [](__m256 x) {
    const __m256i raw = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(raw, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(raw, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(raw, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 chosen =
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
    return _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
  };
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow(v.lo), narrow(v.hi)), 0xd8);
}
static CHAIRLIFT_INLINE void store_bf16(bf16* p, F32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_to_bf16(v));
}

static CHAIRLIFT_INLINE U32x16 load_words(const void* p) {
  const __m256i* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
// Widens 16 unsigned numbers of 16 bits.
static CHAIRLIFT_INLINE U32x16 widen_halves(const void* p) {
  const __m128i* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1))};
}
static CHAIRLIFT_INLINE U32x16 broadcast_word(uint32_t v) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(v));
  return {all, all};
}
// The first / second bfloat16 of each pair.
static CHAIRLIFT_INLINE F32x16 first_of_pairs(U32x16 pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(pairs.hi, 16))};
}
static CHAIRLIFT_INLINE F32x16 second_of_pairs(U32x16 pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(pairs.lo, upper)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs.hi, upper))};
}
// c + a.first * b.first + a.second * b.second, with the level's own rounding in between.
static CHAIRLIFT_INLINE F32x16 dot_pairs(F32x16 c, U32x16 a, U32x16 b) {
  return fmadd(second_of_pairs(a), second_of_pairs(b),
               fmadd(first_of_pairs(a), first_of_pairs(b), c));
}

// Widens 16 half precision numbers.
static CHAIRLIFT_INLINE F32x16 load_f16(const void* p) {
  const __m128i* halves = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
// Widens 16 signed bytes.
static CHAIRLIFT_INLINE F32x16 load_int8(const void* p) {
  const auto widen = [p](int first) {
    int64_t bytes;
    std::memcpy(&bytes, static_cast<const char*>(p) + first, 8);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes)));
  };
  return {widen(0), widen(8)};
}
// Bits [kShift, kShift + 4) of each word, as a number of 0..15, plus kFirst.
template <int kShift, int kFirst>
static CHAIRLIFT_INLINE F32x16 nibbles(U32x16 words) {
  const auto part = [](__m256i v) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi32(v, kShift), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(low, _mm256_set1_epi32(kFirst)));
  };
  return {part(words.lo), part(words.hi)};
}
// Rounds a and b as store_bf16 does: 32 numbers.
static CHAIRLIFT_INLINE void store_two_bf16(bf16* p, F32x16 a, F32x16 b) {
  store_bf16(p, a);
  store_bf16(p + 16, b);
}

// 32 words of 16 bits, four bits of which are an index.
struct WordIndices {
  __m256i lo, hi;

  static CHAIRLIFT_INLINE WordIndices load(const void* p) {
    const __m256i* words = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
};
// Two tables of 16 numbers, rounded as store_bf16 does. store_...() writes the 32 bfloat16 that
// bits [kShift, kShift + 4) of the indices stand for in the first or second table.
class ValuePair {
 public:
  CHAIRLIFT_INLINE ValuePair(F32x16 first, F32x16 second) : first_(first), second_(second) {}

  template <int kShift>
  CHAIRLIFT_INLINE void store_first(bf16* p, WordIndices at) const {
    first_.template look_up<kShift>(p, at);
  }
  template <int kShift>
  CHAIRLIFT_INLINE void store_second(bf16* p, WordIndices at) const {
    second_.template look_up<kShift>(p, at);
  }

 private:
  // The lower and the upper bytes, for a shuffle of bytes.
  struct Table {
    __m256i lower, upper;

    explicit CHAIRLIFT_INLINE Table(F32x16 values) {
      const __m256i v = round_to_bf16(values);
      const __m256i bytes = _mm256_permute4x64_epi64(
          _mm256_packus_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0xff)),
                              _mm256_srli_epi16(v, 8)),
          0xd8);
      lower = _mm256_permute2x128_si256(bytes, bytes, 0x00);
      upper = _mm256_permute2x128_si256(bytes, bytes, 0x11);
    }
    // An index with its top bit set stands for a byte of zero.
    CHAIRLIFT_INLINE __m256i values_of(__m256i indices) const {
      const __m256i in_lower = _mm256_or_si256(indices, _mm256_set1_epi16(-0x8000));
      const __m256i in_upper =
          _mm256_or_si256(_mm256_slli_epi16(indices, 8), _mm256_set1_epi16(0x80));
      return _mm256_or_si256(_mm256_shuffle_epi8(lower, in_lower),
                             _mm256_shuffle_epi8(upper, in_upper));
    }
    template <int kShift>
    CHAIRLIFT_INLINE void look_up(bf16* p, WordIndices at) const {
      const auto part = [this](__m256i words) {
        return values_of(
            _mm256_and_si256(_mm256_srli_epi16(words, kShift), _mm256_set1_epi16(15)));
      };
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), part(at.lo));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p) + 1, part(at.hi));
    }
  };

  Table first_, second_;
};

// Lane i gets lane i ^ kDistance, a power of two.
template <int kDistance>
static CHAIRLIFT_INLINE F32x16 swap_lanes(F32x16 v) {
  if constexpr (kDistance == 1) {
    return {_mm256_permute_ps(v.lo, 0xb1), _mm256_permute_ps(v.hi, 0xb1)};
  }
  if constexpr (kDistance == 2) {
    return {_mm256_permute_ps(v.lo, 0x4e), _mm256_permute_ps(v.hi, 0x4e)};
  }
  if constexpr (kDistance == 4) {
    return {_mm256_permute2f128_ps(v.lo, v.lo, 1), _mm256_permute2f128_ps(v.hi, v.hi, 1)};
  }
  if constexpr (kDistance == 8) return {v.hi, v.lo};
}

static CHAIRLIFT_INLINE U32x16 zero_words() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static CHAIRLIFT_INLINE void store_words(void* p, U32x16 v) {
  __m256i* words = static_cast<__m256i*>(p);
  _mm256_storeu_si256(words, v.lo);
  _mm256_storeu_si256(words + 1, v.hi);
}
static CHAIRLIFT_INLINE U32x16 add_words(U32x16 a, U32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static CHAIRLIFT_INLINE U32x16 times_256(U32x16 v) {
  return {_mm256_slli_epi32(v.lo, 8), _mm256_slli_epi32(v.hi, 8)};
}
// Signed words as floats, rounded to nearest.
static CHAIRLIFT_INLINE F32x16 to_floats(U32x16 v) {
  return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)};
}
// Whole numbers in [-128, 127], each byte xored with `flip`.
static CHAIRLIFT_INLINE void store_bytes(int8_t* p, F32x16 whole, uint8_t flip) {
  const __m256i pairs =  // 0-3 8-11 | 4-7 12-15
      _mm256_packs_epi32(_mm256_cvtps_epi32(whole.lo), _mm256_cvtps_epi32(whole.hi));
  const __m256i ordered = _mm256_permute4x64_epi64(pairs, 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered),
                                        _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(flip))));
}
// Bytes 0 and 2 (1 and 3) of each word as two signed 16-bit numbers.
static CHAIRLIFT_INLINE U32x16 even_bytes(U32x16 v) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(v.lo, 8), 8),
          _mm256_srai_epi16(_mm256_slli_epi16(v.hi, 8), 8)};
}
static CHAIRLIFT_INLINE U32x16 odd_bytes(U32x16 v) {
  return {_mm256_srai_epi16(v.lo, 8), _mm256_srai_epi16(v.hi, 8)};
}
// c + a.lower * b.lower + a.upper * b.upper, of the signed halves of each word.
static CHAIRLIFT_INLINE U32x16 dot_halves(U32x16 c, U32x16 a, U32x16 b) {
  // Not the intrinsics: g++ 12 forms many products before it adds them, and spills them.
  const auto part = [](__m256i& sum, __m256i x, __m256i y) {
    __m256i products;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(products)
        : "x"(x), "x"(y));
  };
  part(c.lo, a.lo, b.lo);
  part(c.hi, a.hi, b.hi);
  return c;
}

// 16 times bits [kShift, kShift + 2) of each word.
template <int kShift>
static CHAIRLIFT_INLINE F32x16 sixteens(U32x16 words) {
  const auto part = [](__m256i v) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi32(v, kShift), _mm256_set1_epi32(3));
    return _mm256_cvtepi32_ps(_mm256_slli_epi32(low, 4));
  };
  return {part(words.lo), part(words.hi)};
}

// Four words of a row and of the fourth behind it.
static CHAIRLIFT_INLINE __m256i load_quarters(const std::byte* at, int64_t stride) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 4 * stride)), 1);
}
// Eight rows of four words become four of eight; strides in bytes.
static CHAIRLIFT_INLINE void transpose_quarters(const std::byte* from, int64_t from_stride,
                                                std::byte* to, int64_t to_stride) {
  const __m256i a = load_quarters(from, from_stride);
  const __m256i b = load_quarters(from + from_stride, from_stride);
  const __m256i c = load_quarters(from + 2 * from_stride, from_stride);
  const __m256i d = load_quarters(from + 3 * from_stride, from_stride);
  const __m256i ab = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  const auto put = [=](int row, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + row * to_stride), v);
  };
  put(0, _mm256_unpacklo_epi64(ab, cd));
  put(1, _mm256_unpackhi_epi64(ab, cd));
  put(2, _mm256_unpacklo_epi64(ab_high, cd_high));
  put(3, _mm256_unpackhi_epi64(ab_high, cd_high));
}
// Transposes 16 rows of 16 words; strides in bytes.
static CHAIRLIFT_INLINE void transpose_words(const std::byte* from, int64_t from_stride,
                                             std::byte* to, int64_t to_stride) {
#pragma GCC unroll 4
  for (int quarter = 0; quarter < 4; quarter++) {
    std::byte* out = to + 4 * quarter * to_stride;
    transpose_quarters(from + 16 * quarter, from_stride, out, to_stride);
    transpose_quarters(from + 16 * quarter + 8 * from_stride, from_stride, out + 32, to_stride);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
