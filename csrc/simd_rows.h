// Reductions of 4 or 16 vectors at once: lane r of the result is what reduce_add or reduce_max gives
// for vector r, bit for bit, whatever the others are. For *_isa.cpp files.
#pragma once

#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

#if defined(__AVX512F__)

// Each step puts halves of two vectors side by side and combines them, so that all end up as one;
// the tree of each is that of the reductions of one vector.
template <int N, class Combine>
static CHAIRLIFT_INLINE F32x16 reduce_rows(const F32x16 (&rows)[N], Combine&& combine) {
  static_assert(N == 4 || N == kLanes);
  F32x16 eights[N / 2], fours[N / 4], twos[2] = {zero(), zero()};
#pragma GCC unroll 8
  for (int i = 0; i < N / 2; i++) {
    const F32x16 a = rows[2 * i], b = rows[2 * i + 1];
    eights[i] = combine(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < N / 4; i++) {
    const F32x16 a = eights[2 * i], b = eights[2 * i + 1];
    fours[i] = combine(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < N / 4; i += 2) {
    const F32x16 a = fours[i], b = i + 1 < N / 4 ? fours[i + 1] : zero();
    twos[i / 2] = combine(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const F32x16 mixed = combine(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                               _mm512_shuffle_ps(twos[0], twos[1], 0xdd));
  // Row r has come to lie in lane 4 (r % 4) + r / 4.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, mixed);
}
template <int N>
static CHAIRLIFT_INLINE F32x16 reduce_add_rows(const F32x16 (&rows)[N]) {
  return reduce_rows(rows, [](F32x16 a, F32x16 b) { return add(a, b); });
}
template <int N>
static CHAIRLIFT_INLINE F32x16 reduce_max_rows(const F32x16 (&rows)[N]) {
  return reduce_rows(rows, [](F32x16 a, F32x16 b) { return max(a, b); });
}

#else

template <int N>
static CHAIRLIFT_INLINE F32x16 reduce_add_rows(const F32x16 (&rows)[N]) {
  alignas(64) float sums[kLanes] = {};
  for (int r = 0; r < N; r++) sums[r] = reduce_add(rows[r]);
  return load(sums);
}
template <int N>
static CHAIRLIFT_INLINE F32x16 reduce_max_rows(const F32x16 (&rows)[N]) {
  alignas(64) float maxima[kLanes] = {};
  for (int r = 0; r < N; r++) maxima[r] = reduce_max(rows[r]);
  return load(maxima);
}

#endif

}  // namespace chairlift::CHAIRLIFT_ISA
