// simd.h's vectors on AVX-512: one register each. Included by simd.h only.
#pragma once

namespace chairlift::CHAIRLIFT_ISA {

using F32x16 = __m512;
using Mask16 = __mmask16;
// 16 pairs of bfloat16, or any 16 words of 32 bits.
using U32x16 = __m512i;

static CHAIRLIFT_INLINE F32x16 zero() { return _mm512_setzero_ps(); }
static CHAIRLIFT_INLINE F32x16 broadcast(float v) { return _mm512_set1_ps(v); }
static CHAIRLIFT_INLINE F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
static CHAIRLIFT_INLINE void store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }

static CHAIRLIFT_INLINE F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
static CHAIRLIFT_INLINE F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
static CHAIRLIFT_INLINE F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
static CHAIRLIFT_INLINE F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
// a * b + c, rounded once.
static CHAIRLIFT_INLINE F32x16 fmadd(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fmadd_ps(a, b, c);
}
// 1 / a within 1 ulp or so, for |a| in [2^-125, 2^125]: one Newton step on a 14-bit estimate.
static CHAIRLIFT_INLINE F32x16 reciprocal(F32x16 a) {
  const F32x16 guess = _mm512_rcp14_ps(a);
  return mul(guess, _mm512_fnmadd_ps(a, guess, broadcast(2.0f)));
}
// If either lane is NaN the result is b's lane.
static CHAIRLIFT_INLINE F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
static CHAIRLIFT_INLINE F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }

static CHAIRLIFT_INLINE Mask16 less(F32x16 a, F32x16 b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static CHAIRLIFT_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static CHAIRLIFT_INLINE Mask16 is_nan(F32x16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
// Lanes below `count`; any int.
static CHAIRLIFT_INLINE Mask16 first_lanes(int count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : static_cast<Mask16>((1u << count) - 1);
}
static CHAIRLIFT_INLINE Mask16 mask_and(Mask16 a, Mask16 b) { return static_cast<Mask16>(a & b); }
static CHAIRLIFT_INLINE Mask16 mask_or(Mask16 a, Mask16 b) { return static_cast<Mask16>(a | b); }
static CHAIRLIFT_INLINE Mask16 mask_not(Mask16 a) { return static_cast<Mask16>(~a); }
// Bit i is lane i.
static CHAIRLIFT_INLINE uint32_t mask_bits(Mask16 m) { return m; }
// m ? a : b, lane by lane; the other side's NaN never leaks.
static CHAIRLIFT_INLINE F32x16 select(Mask16 m, F32x16 a, F32x16 b) {
  return _mm512_mask_blend_ps(m, b, a);
}

// A fixed tree: halves are added until one lane is left, on every level.
static CHAIRLIFT_INLINE float reduce_add(F32x16 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 eighth = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(eighth, _mm_movehdup_ps(eighth)));
}
static CHAIRLIFT_INLINE float reduce_max(F32x16 v) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 eighth = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(eighth, _mm_movehdup_ps(eighth)));
}

static CHAIRLIFT_INLINE F32x16 round_to_int(F32x16 v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^whole, whole an integer in [-126, 128] and v in [1/2, 2].
static CHAIRLIFT_INLINE F32x16 scale_by_power_of_two(F32x16 v, F32x16 whole) {
  return _mm512_scalef_ps(v, whole);
}

// v with the lower bits of `biased` added to its exponent: v * 2^n where biased is 1.5 * 2^23 + n.
static CHAIRLIFT_INLINE F32x16 add_to_exponent(F32x16 v, F32x16 biased) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(biased), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(v), shifted));
}

static CHAIRLIFT_INLINE F32x16 load_bf16(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// 16 bfloat16, rounded to nearest, ties to even. With AVX512_BF16 subnormal inputs become zero.
static CHAIRLIFT_INLINE __m256i round_to_bf16(F32x16 v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
#else
  const __m512i raw = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(raw, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(raw, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(raw, _mm512_set1_epi32(0x400000));
  const __m512i chosen = _mm512_mask_blend_epi32(is_nan(v), rounded, quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
#endif
}
static CHAIRLIFT_INLINE void store_bf16(bf16* p, F32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_to_bf16(v));
}
// Both, a first.
static CHAIRLIFT_INLINE __m512i round_two_to_bf16(F32x16 a, F32x16 b) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
#else
  return _mm512_inserti64x4(_mm512_castsi256_si512(round_to_bf16(a)), round_to_bf16(b), 1);
#endif
}

static CHAIRLIFT_INLINE U32x16 load_words(const void* p) { return _mm512_loadu_si512(p); }
// Widens 16 unsigned numbers of 16 bits.
static CHAIRLIFT_INLINE U32x16 widen_halves(const void* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
static CHAIRLIFT_INLINE U32x16 broadcast_word(uint32_t v) {
  return _mm512_set1_epi32(static_cast<int>(v));
}
// The first / second bfloat16 of each pair.
static CHAIRLIFT_INLINE F32x16 first_of_pairs(U32x16 pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
static CHAIRLIFT_INLINE F32x16 second_of_pairs(U32x16 pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
// c + a.first * b.first + a.second * b.second, with the level's own rounding in between.
static CHAIRLIFT_INLINE F32x16 dot_pairs(F32x16 c, U32x16 a, U32x16 b) {
#if defined(__AVX512BF16__)
  // Not the intrinsic: g++ 12 spills accumulators around it in unrolled loops.
  asm("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
#else
  return fmadd(second_of_pairs(a), second_of_pairs(b),
               fmadd(first_of_pairs(a), first_of_pairs(b), c));
#endif
}

// Widens 16 half precision numbers.
static CHAIRLIFT_INLINE F32x16 load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
// Widens 16 signed bytes.
static CHAIRLIFT_INLINE F32x16 load_int8(const void* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// Bits [kShift, kShift + 4) of each word, as a number of 0..15, plus kFirst.
template <int kShift, int kFirst>
static CHAIRLIFT_INLINE F32x16 nibbles(U32x16 words) {
  // The permutation looks at the lower four bits of its indices alone.
  const F32x16 values =
      _mm512_add_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                    broadcast(kFirst));
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, kShift), values);
}
// Rounds a and b as store_bf16 does: 32 numbers.
static CHAIRLIFT_INLINE void store_two_bf16(bf16* p, F32x16 a, F32x16 b) {
  _mm512_storeu_si512(p, round_two_to_bf16(a, b));
}

// 32 words of 16 bits, four bits of which are an index.
struct WordIndices {
  __m512i words;

  static CHAIRLIFT_INLINE WordIndices load(const void* p) { return {_mm512_loadu_si512(p)}; }
};
// Two tables of 16 numbers, rounded as store_bf16 does. store_...() writes the 32 bfloat16 that
// bits [kShift, kShift + 4) of the indices stand for in the first or second table.
class ValuePair {
 public:
  CHAIRLIFT_INLINE ValuePair(F32x16 first, F32x16 second)
      : values_(round_two_to_bf16(first, second)) {}

  template <int kShift>
  CHAIRLIFT_INLINE void store_first(bf16* p, WordIndices at) const {
    look_up(p, _mm512_and_si512(shifted<kShift>(at), _mm512_set1_epi16(15)));
  }
  template <int kShift>
  CHAIRLIFT_INLINE void store_second(bf16* p, WordIndices at) const {
    look_up(p, _mm512_or_si512(shifted<kShift>(at), _mm512_set1_epi16(16)));
  }

 private:
  template <int kShift>
  static CHAIRLIFT_INLINE __m512i shifted(WordIndices at) {
    return _mm512_srli_epi16(at.words, kShift);
  }
  // The permutation looks at the lower five bits of its indices alone.
  CHAIRLIFT_INLINE void look_up(bf16* p, __m512i indices) const {
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(indices, values_));
  }

  __m512i values_;
};

// Lane i gets lane i ^ kDistance, a power of two.
template <int kDistance>
static CHAIRLIFT_INLINE F32x16 swap_lanes(F32x16 v) {
  if constexpr (kDistance == 1) return _mm512_permute_ps(v, 0xb1);
  if constexpr (kDistance == 2) return _mm512_permute_ps(v, 0x4e);
  if constexpr (kDistance == 4) return _mm512_shuffle_f32x4(v, v, 0xb1);
  if constexpr (kDistance == 8) return _mm512_shuffle_f32x4(v, v, 0x4e);
}

static CHAIRLIFT_INLINE U32x16 zero_words() { return _mm512_setzero_si512(); }
static CHAIRLIFT_INLINE void store_words(void* p, U32x16 v) { _mm512_storeu_si512(p, v); }
static CHAIRLIFT_INLINE U32x16 add_words(U32x16 a, U32x16 b) { return _mm512_add_epi32(a, b); }
static CHAIRLIFT_INLINE U32x16 times_256(U32x16 v) { return _mm512_slli_epi32(v, 8); }
// Signed words as floats, rounded to nearest.
static CHAIRLIFT_INLINE F32x16 to_floats(U32x16 v) { return _mm512_cvtepi32_ps(v); }
// Whole numbers in [-128, 127], each byte xored with `flip`.
static CHAIRLIFT_INLINE void store_bytes(int8_t* p, F32x16 whole, uint8_t flip) {
  const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(flip))));
}
// Bytes 0 and 2 (1 and 3) of each word as two signed 16-bit numbers.
static CHAIRLIFT_INLINE U32x16 even_bytes(U32x16 v) {
  return _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8);
}
static CHAIRLIFT_INLINE U32x16 odd_bytes(U32x16 v) { return _mm512_srai_epi16(v, 8); }
// c + a.lower * b.lower + a.upper * b.upper, of the signed halves of each word.
static CHAIRLIFT_INLINE U32x16 dot_halves(U32x16 c, U32x16 a, U32x16 b) {
  // Not the intrinsics: g++ 12 forms many products before it adds them, and spills them.
  U32x16 products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(c), "=&v"(products) : "v"(a), "v"(b));
  return c;
}
#if defined(__AVX512VNNI__)
// c + the four products of unsigned bytes of x and signed bytes of w, in each word.
static CHAIRLIFT_INLINE U32x16 dot_bytes(U32x16 c, U32x16 x, U32x16 w) {
  // Not the intrinsic: g++ 12 spills accumulators around it in unrolled loops.
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(x), "v"(w));
  return c;
}
#endif

// 16 times bits [kShift, kShift + 2) of each word.
template <int kShift>
static CHAIRLIFT_INLINE F32x16 sixteens(U32x16 words) {
  const F32x16 values =
      _mm512_setr_ps(0, 16, 32, 48, 0, 16, 32, 48, 0, 16, 32, 48, 0, 16, 32, 48);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, kShift), values);
}

// Words 4 `quarter` .. + 3 of rows `row`, + 4, + 8 and + 12.
static CHAIRLIFT_INLINE __m512i load_quarters(const std::byte* from, int64_t stride, int row,
                                              int quarter) {
  const auto load_quarter = [=](int i) {
    const std::byte* at = from + (row + 4 * i) * stride + 16 * quarter;
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  __m512i v = _mm512_castsi128_si512(load_quarter(0));
  v = _mm512_inserti32x4(v, load_quarter(1), 1);
  v = _mm512_inserti32x4(v, load_quarter(2), 2);
  return _mm512_inserti32x4(v, load_quarter(3), 3);
}
// Transposes 16 rows of 16 words; strides in bytes.
static CHAIRLIFT_INLINE void transpose_words(const std::byte* from, int64_t from_stride,
                                             std::byte* to, int64_t to_stride) {
#pragma GCC unroll 4
  for (int quarter = 0; quarter < 4; quarter++) {
    const __m512i a = load_quarters(from, from_stride, 0, quarter);
    const __m512i b = load_quarters(from, from_stride, 1, quarter);
    const __m512i c = load_quarters(from, from_stride, 2, quarter);
    const __m512i d = load_quarters(from, from_stride, 3, quarter);
    const __m512i ab = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    std::byte* out = to + 4 * quarter * to_stride;
    _mm512_storeu_si512(out, _mm512_unpacklo_epi64(ab, cd));
    _mm512_storeu_si512(out + to_stride, _mm512_unpackhi_epi64(ab, cd));
    _mm512_storeu_si512(out + 2 * to_stride, _mm512_unpacklo_epi64(ab_high, cd_high));
    _mm512_storeu_si512(out + 3 * to_stride, _mm512_unpackhi_epi64(ab_high, cd_high));
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
