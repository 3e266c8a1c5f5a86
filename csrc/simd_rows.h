// Reductions of 16 vectors at once: lane r of the result is what reduce_add or reduce_max gives for
// vector r, bit for bit, whatever the others are. For *_isa.cpp files.
#pragma once

#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

#if defined(__AVX512F__)

// Each step puts halves of two vectors side by side and combines them, so that 16 vectors end up as
// one; the tree of each is that of the reductions of one vector.
template <class Combine>
static CHAIRLIFT_INLINE F32x16 reduce_rows(const F32x16 (&rows)[kLanes], Combine&& combine) {
  F32x16 eights[8], fours[4], twos[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    const F32x16 a = rows[2 * i], b = rows[2 * i + 1];
    eights[i] = combine(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const F32x16 a = eights[2 * i], b = eights[2 * i + 1];
    fours[i] = combine(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    const F32x16 a = fours[2 * i], b = fours[2 * i + 1];
    twos[i] = combine(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const F32x16 mixed = combine(_mm512_shuffle_ps(twos[0], twos[1], 0x88),
                               _mm512_shuffle_ps(twos[0], twos[1], 0xdd));
  // Row r has come to lie in lane 4 (r % 4) + r / 4.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(order, mixed);
}
static CHAIRLIFT_INLINE F32x16 reduce_add_rows(const F32x16 (&rows)[kLanes]) {
  return reduce_rows(rows, [](F32x16 a, F32x16 b) { return add(a, b); });
}
static CHAIRLIFT_INLINE F32x16 reduce_max_rows(const F32x16 (&rows)[kLanes]) {
  return reduce_rows(rows, [](F32x16 a, F32x16 b) { return max(a, b); });
}

#else

static CHAIRLIFT_INLINE F32x16 reduce_add_rows(const F32x16 (&rows)[kLanes]) {
  alignas(64) float sums[kLanes];
  for (int r = 0; r < kLanes; r++) sums[r] = reduce_add(rows[r]);
  return load(sums);
}
static CHAIRLIFT_INLINE F32x16 reduce_max_rows(const F32x16 (&rows)[kLanes]) {
  alignas(64) float maxima[kLanes];
  for (int r = 0; r < kLanes; r++) maxima[r] = reduce_max(rows[r]);
  return load(maxima);
}

#endif

}  // namespace chairlift::CHAIRLIFT_ISA
