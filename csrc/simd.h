// The vector vocabulary kernels are written in: 16 float lanes on every instruction set level.
//
// Included only by *_isa.cpp files and their headers. Those are compiled once per level with that
// level's flags, and everything in them lives in namespace chairlift::CHAIRLIFT_ISA, so that the
// linker never mixes code of two levels. For the same reason such files must not use standard
// library templates that may end up as out-of-line functions (containers, std::function, ...).
//
// A fixed width of 16 lanes keeps memory layouts and the order of every sum independent of the
// machine's register width; the compiler splits a vector into what the level has.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef CHAIRLIFT_ISA
#error "simd.h belongs to *_isa.cpp files, which CMake compiles with CHAIRLIFT_ISA=isa_<level>"
#endif

// Functions that do nothing but prefetch need it, too: g++ drops calls of them as without effect.
#define CHAIRLIFT_INLINE inline __attribute__((always_inline))

namespace chairlift {

// A bfloat16's bits: the upper half of a float's.
using bf16 = uint16_t;

namespace CHAIRLIFT_ISA {

constexpr int kLanes = 16;

#if defined(__AMX_BF16__)
constexpr bool kHasAmx = true;
#else
constexpr bool kHasAmx = false;
#endif
#if defined(__AVX512BF16__)
constexpr bool kHasBf16Dot = true;
#else
constexpr bool kHasBf16Dot = false;
#endif

}  // namespace CHAIRLIFT_ISA
}  // namespace chairlift

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {

// Scalar conversions, with the same rounding (to nearest, ties to even) as the vector ones.
static CHAIRLIFT_INLINE float to_float(bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}
static CHAIRLIFT_INLINE bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16>((bits >> 16) | 0x40u);
  return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Four bytes from anywhere.
static CHAIRLIFT_INLINE uint32_t load_word(const void* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// Overloads by element type, for kernels templated over it.
static CHAIRLIFT_INLINE F32x16 load_as_f32(const float* p) { return load(p); }
static CHAIRLIFT_INLINE F32x16 load_as_f32(const bf16* p) { return load_bf16(p); }
static CHAIRLIFT_INLINE void store_from_f32(float* p, F32x16 v) { store(p, v); }
static CHAIRLIFT_INLINE void store_from_f32(bf16* p, F32x16 v) { store_bf16(p, v); }

// The first `count` (0..16) elements; the lanes behind them are zero and their memory is not read.
template <class T>
static CHAIRLIFT_INLINE F32x16 load_partial(const T* p, int count) {
  alignas(64) T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(count) * sizeof(T));
  return load_as_f32(lanes);
}
template <class T>
static CHAIRLIFT_INLINE void store_partial(T* p, F32x16 v, int count) {
  alignas(64) T lanes[kLanes];
  store_from_f32(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(T));
}

// 2^x for x in [-126, 128]. Relative error below 1.5e-7 (minimax polynomial of degree 6 on
// [-1/2, 1/2], error 2e-9, plus rounding); exactly 1 at 0; +inf at 128; NaN stays NaN.
static CHAIRLIFT_INLINE F32x16 exp2_of_normal(F32x16 x) {
  const F32x16 whole = round_to_int(x);
  const F32x16 rest = sub(x, whole);
  F32x16 p = broadcast(0x1.41d332p-13f);
  p = fmadd(p, rest, broadcast(0x1.5f456ap-10f));
  p = fmadd(p, rest, broadcast(0x1.3b2dbcp-7f));
  p = fmadd(p, rest, broadcast(0x1.c6aed4p-5f));
  p = fmadd(p, rest, broadcast(0x1.ebfbdap-3f));
  p = fmadd(p, rest, broadcast(0x1.62e430p-1f));
  p = fmadd(p, rest, broadcast(1.0f));
  return scale_by_power_of_two(p, whole);
}

// 2^x for any x: exp2_of_normal where it is defined; 0 below, no subnormals; +inf above.
static CHAIRLIFT_INLINE F32x16 exp2(F32x16 x) {
  const Mask16 vanishes = less(x, broadcast(-126.0f));
  x = min(broadcast(128.0f), max(broadcast(-126.0f), x));
  return select(vanishes, zero(), exp2_of_normal(x));
}

static CHAIRLIFT_INLINE F32x16 exp(F32x16 x) {
  return exp2(mul(x, broadcast(1.44269504088896341f)));
}

}  // namespace chairlift::CHAIRLIFT_ISA
