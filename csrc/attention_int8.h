// Heads as int8: rotated, rounded with one scale, and written into the cache. Part of
// attention_isa.cpp.
//
// A few dimensions of K are much larger than the others, the same ones in every token, and a scale
// for the whole head would round the others away. So K goes through a Hadamard transform H (entries
// 1 and -1, H H = n I), which spreads them, and q does too: (H q) . (H k) = n q . k. n is the
// largest power of two that divides the padded head. Source: Ashkboos et al. 2024, "QuaRot:
// Outlier-Free 4-Bit Inference in Rotated LLMs", section 4, KV cache.
//
// A scale is a bfloat16 rounded up before it is used, so that storing it loses nothing.
#pragma once

#include "attention.h"
#include "hadamard.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// Heads smaller than this everywhere count as zero: 127 / max would not be finite.
constexpr float kSmallestHead = 1e-30f;

// n of the file comment, for dim a multiple of 16.
static CHAIRLIFT_INLINE int hadamard_size(int dim) { return dim & -dim; }

// head[0, dim) becomes its transform, in blocks of hadamard_size(dim).
static inline void hadamard(float* head, int dim) {
  for (int i = 0; i < dim; i += kLanes) store(head + i, hadamard_lanes(load(head + i)));
  for (int distance = kLanes; distance < hadamard_size(dim); distance *= 2) {
    for (int i = 0; i < dim; i += kLanes) {
      if (i & distance) continue;
      const F32x16 a = load(head + i), b = load(head + i + distance);
      store(head + i, add(a, b));
      store(head + i + distance, sub(a, b));
    }
  }
}

// max |head|, or NaN if a value is not finite.
static inline float largest_magnitude(const float* head, int dim) {
  F32x16 largest = zero(), poison = zero();
  for (int i = 0; i < dim; i += kLanes) {
    const F32x16 v = load(head + i);
    largest = max(largest, max(v, sub(zero(), v)));
    poison = fmadd(v, zero(), poison);
  }
  return reduce_max(largest) + reduce_add(poison);
}

// 16 values times `inverse` as whole numbers in [-127, 127], NaN as one of them.
static CHAIRLIFT_INLINE F32x16 to_whole(F32x16 v, float inverse) {
  const F32x16 scaled = mul(v, broadcast(inverse));
  return round_to_int(min(max(scaled, broadcast(-127.0f)), broadcast(127.0f)));
}

// The smallest bfloat16 at least as large as a value >= 0.
static CHAIRLIFT_INLINE bf16 bf16_above(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return 0x7fc0;
  return static_cast<bf16>((bits + 0xffffu) >> 16);
}

// One head's scale: value = scale * whole number.
static CHAIRLIFT_INLINE bf16 head_scale(const float* head, int dim) {
  const float most = largest_magnitude(head, dim);
  return most < kSmallestHead ? 0 : bf16_above(most * (1.0f / 127.0f));
}

static CHAIRLIFT_INLINE float inverse_of_scale(bf16 scale) {
  return scale == 0 ? 0.0f : 1.0f / to_float(scale);
}

}  // namespace chairlift::CHAIRLIFT_ISA
