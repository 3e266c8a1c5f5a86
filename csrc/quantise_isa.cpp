#include "quantised_rows.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kVectorsPerBlock = kRotationBlock / kLanes;
// Rows smaller than this everywhere count as zero: 127 / max would not be finite.
constexpr float kSmallest = 1e-30f;

// -1 for lanes that have the bit `distance`, else 1.
struct Signs {
  constexpr explicit Signs(int distance) : of_lane() {
    for (int i = 0; i < kLanes; i++) of_lane[i] = i & distance ? -1.0f : 1.0f;
  }
  float of_lane[kLanes];
};

// One stage of the transform within vectors: lanes with the bit kDistance subtract.
template <int kDistance>
static CHAIRLIFT_INLINE F32x16 butterfly(F32x16 v) {
  alignas(64) static constexpr Signs kSigns(kDistance);
  return fmadd(v, load(kSigns.of_lane), swap_lanes<kDistance>(v));
}

static CHAIRLIFT_INLINE void rotate_block(F32x16 (&v)[kVectorsPerBlock]) {
#pragma GCC unroll 4
  for (int i = 0; i < kVectorsPerBlock; i++) {
    v[i] = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(v[i]))));
  }
  const F32x16 a = add(v[0], v[1]), b = sub(v[0], v[1]);
  const F32x16 c = add(v[2], v[3]), d = sub(v[2], v[3]);
  v[0] = add(a, c);
  v[1] = add(b, d);
  v[2] = sub(a, c);
  v[3] = sub(b, d);
}

// Rotates a row into row.rotated and returns max |rotated|, or NaN.
template <class In>
static CHAIRLIFT_INLINE float rotate(const In* x, const QuantisedRow& row) {
  F32x16 largest = zero(), poison = zero();
  for (int k = 0; k < row.size; k += kRotationBlock) {
    F32x16 v[kVectorsPerBlock];
    if (row.size - k >= kRotationBlock) {
#pragma GCC unroll 4
      for (int i = 0; i < kVectorsPerBlock; i++) v[i] = load_as_f32(x + k + i * kLanes);
    } else {
      for (int i = 0; i < kVectorsPerBlock; i++) {
        const int left = row.size - k - i * kLanes;
        const int count = left < 0 ? 0 : left > kLanes ? kLanes : left;
        v[i] = load_partial(x + k + (count > 0 ? i * kLanes : 0), count);
      }
    }
    rotate_block(v);
#pragma GCC unroll 4
    for (int i = 0; i < kVectorsPerBlock; i++) {
      store(row.rotated + k + i * kLanes, v[i]);
      largest = max(largest, max(v[i], sub(zero(), v[i])));
      poison = fmadd(v[i], zero(), poison);  // NaN if any value is not finite
    }
  }
  return reduce_max(largest) + reduce_add(poison);
}

template <class In>
static float quantise(const In* x, const QuantisedRow& row) {
  const float most = rotate(x, row);
  const F32x16 to_whole = broadcast(most > kSmallest ? 127.0f / most : 0.0f);
  const F32x16 low = broadcast(-127.0f), high = broadcast(127.0f);
  for (int k = 0; k < row.size; k += kRotationBlock) {
#pragma GCC unroll 4
    for (int i = k; i < k + kRotationBlock; i += kLanes) {
      // The limits turn NaN into a number.
      const F32x16 y = min(max(mul(load(row.rotated + i), to_whole), low), high);
      store_bytes(row.out + i, round_to_int(y), row.flip);
    }
  }
  return most > kSmallest || most != most ? most / 127.0f : 0.0f;
}

CHAIRLIFT_DEFINE_KERNELS(QuantiseKernels, quantise_kernels) = {quantise<float>, quantise<bf16>};

}  // namespace chairlift::CHAIRLIFT_ISA
