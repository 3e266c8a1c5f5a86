#include "peak_kernels.h"

#include "simd.h"
#if defined(__AMX_BF16__)
#include "gemm_amx.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {
namespace {

// Sums that are added to in turn, in registers: enough of them to hide the latency of each addition.
#if defined(__AVX512F__)
constexpr int kSums = 12;
#elif defined(__AVX2__)
constexpr int kSums = 5;  // of two registers each
#else
constexpr int kSums = 2;  // of four
#endif

struct FloatSteps {
  using Vector = F32x16;
  static constexpr int64_t kOperations = 2 * kLanes;
  static Vector start() { return zero(); }
  static CHAIRLIFT_INLINE Vector step(Vector sum, Vector a) { return fmadd(a, a, sum); }
};

#if defined(__AVX512BF16__)
struct Bf16Steps {
  using Vector = F32x16;
  static constexpr int64_t kOperations = 4 * kLanes;
  static Vector start() { return zero(); }
  static CHAIRLIFT_INLINE Vector step(Vector sum, Vector a) {
    return dot_pairs(sum, reinterpret_cast<U32x16>(a), reinterpret_cast<U32x16>(a));
  }
};
#else
using Bf16Steps = FloatSteps;
#endif

struct Int8Steps {
  using Vector = U32x16;
  static Vector start() { return zero_words(); }
#if defined(__AVX512VNNI__)
  static constexpr int64_t kOperations = 8 * kLanes;
  static CHAIRLIFT_INLINE Vector step(Vector sum, Vector a) { return dot_bytes(sum, a, a); }
#else
  static constexpr int64_t kOperations = 4 * kLanes;
  static CHAIRLIFT_INLINE Vector step(Vector sum, Vector a) { return dot_halves(sum, a, a); }
#endif
};

template <class Steps>
int64_t add_up(int64_t rounds) {
  using Vector = typename Steps::Vector;
  Vector sums[kSums], factors[kSums], kept[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; i++) {
    sums[i] = Steps::start();
    factors[i] = Steps::start();
  }
  for (int64_t round = 0; round < rounds; round++) {
    asm volatile("" : "+m"(factors));  // or products would be computed once for all
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) sums[i] = Steps::step(sums[i], factors[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSums; i++) kept[i] = sums[i];
  asm volatile("" : : "m"(kept));  // the sums are wanted
  return rounds * kSums * Steps::kOperations;
}

#if defined(__AMX_BF16__)
template <class Tiles>
int64_t multiply_tiles_alone(int64_t rounds) {
  const TileRegisters registers;
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t round = 0; round < rounds; round++) {
    Tiles::template multiply<0>();
    Tiles::template multiply<1>();
    Tiles::template multiply<2>();
    Tiles::template multiply<3>();
  }
  return rounds * 4 * 2 * kTileRows * kLanes * Tiles::kInputs;
}
#endif

}  // namespace

CHAIRLIFT_DEFINE_KERNELS(PeakKernels, peak_kernels) = {
    add_up<FloatSteps>,
#if defined(__AMX_BF16__)
    multiply_tiles_alone<Bf16Tiles>,
    multiply_tiles_alone<Int8Tiles>,
#else
    add_up<Bf16Steps>,
    add_up<Int8Steps>,
#endif
};

}  // namespace chairlift::CHAIRLIFT_ISA
