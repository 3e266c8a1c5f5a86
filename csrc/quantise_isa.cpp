#include "hadamard.h"
#include "quantised_rows.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kVectorsPerBlock = kRotationBlock / kLanes;
// Rows smaller than this everywhere count as zero: 127 / max would not be finite.
constexpr float kSmallest = 1e-30f;

static CHAIRLIFT_INLINE void rotate_block(F32x16 (&v)[kVectorsPerBlock]) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectorsPerBlock; i++) v[i] = hadamard_lanes(v[i]);
  const F32x16 a = add(v[0], v[1]), b = sub(v[0], v[1]);
  const F32x16 c = add(v[2], v[3]), d = sub(v[2], v[3]);
  v[0] = add(a, c);
  v[1] = add(b, d);
  v[2] = sub(a, c);
  v[3] = sub(b, d);
}

// max(|v|, most); passes over NaN in v.
static CHAIRLIFT_INLINE F32x16 largest(F32x16 v, F32x16 most) {
#if defined(__AVX512DQ__)
  return _mm512_range_ps(v, most, 0b1011);  // the larger magnitude, its sign cleared
#else
  return max(max(v, sub(zero(), v)), most);
#endif
}

// Rotates a row into row.rotated and returns max |rotated|, or NaN.
template <class In>
static CHAIRLIFT_INLINE float rotate(const In* x, const QuantisedRow& row) {
  const int size = row.size;
  float* rotated = row.rotated;
  F32x16 most = zero(), poison = zero();
  for (int k = 0; k < size; k += kRotationBlock) {
    F32x16 v[kVectorsPerBlock];
    if (size - k >= kRotationBlock) {
#pragma GCC unroll 4
      for (int i = 0; i < kVectorsPerBlock; i++) v[i] = load_as_f32(x + k + i * kLanes);
    } else {
      for (int i = 0; i < kVectorsPerBlock; i++) {
        const int left = size - k - i * kLanes;
        const int count = left < 0 ? 0 : left > kLanes ? kLanes : left;
        v[i] = load_partial(x + k + (count > 0 ? i * kLanes : 0), count);
      }
    }
    rotate_block(v);
#pragma GCC unroll 4
    for (int i = 0; i < kVectorsPerBlock; i++) {
      store(rotated + k + i * kLanes, v[i]);
      most = largest(v[i], most);
    }
    // A value that is not finite makes all 64 so: one vector tells.
    poison = fmadd(v[0], zero(), poison);
  }
  const float magnitude = reduce_max(most);
  return magnitude + magnitude * 0.0f + reduce_add(poison);  // NaN also where a sum has grown to infinity
}

// Rounds a block of values in [-127.5, 127.5], or all NaN, to bytes xored with `flip`.
static CHAIRLIFT_INLINE void store_rounded(int8_t* out, const F32x16 (&v)[kVectorsPerBlock],
                                           uint8_t flip) {
#if defined(__AVX512BW__)
  // Packing goes by quarters of registers: words of four bytes come out in the order 0 4 8 12 1 ...
  const auto words = [](F32x16 a, F32x16 b) {
    return _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
  };
  const __m512i mixed = _mm512_packs_epi16(words(v[0], v[1]), words(v[2], v[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_permutexvar_epi32(order, mixed),
                                            _mm512_set1_epi8(static_cast<char>(flip))));
#else
  const F32x16 low = broadcast(-127.0f), high = broadcast(127.0f);
  for (int i = 0; i < kVectorsPerBlock; i++) {
    // The limits turn NaN into a number.
    store_bytes(out + i * kLanes, round_to_int(min(max(v[i], low), high)), flip);
  }
#endif
}

template <class In>
static float quantise(const In* x, const QuantisedRow& row) {
  const float most = rotate(x, row);
  const F32x16 to_whole = broadcast(most > kSmallest ? 127.0f / most : 0.0f);
  const QuantisedRow here = row;  // which what is stored cannot change
  for (int k = 0; k < here.size; k += kRotationBlock) {
    F32x16 v[kVectorsPerBlock];
#pragma GCC unroll 4
    for (int i = 0; i < kVectorsPerBlock; i++) {
      v[i] = mul(load(here.rotated + k + i * kLanes), to_whole);
    }
    store_rounded(here.out + k, v, here.flip);
  }
  return most > kSmallest || most != most ? most / 127.0f : 0.0f;
}

CHAIRLIFT_DEFINE_KERNELS(QuantiseKernels, quantise_kernels) = {quantise<float>, quantise<bf16>};

}  // namespace chairlift::CHAIRLIFT_ISA
