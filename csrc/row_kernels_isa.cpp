#include "row_kernels.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

template <class Out>
static void rms_norm(const RmsNormRow& row, Out* out) {
  F32x16 even = zero(), odd = zero();
  for (int64_t i = 0; i < row.padded; i += 2 * kLanes) {
    const F32x16 a = load(row.x + i), b = load(row.x + i + kLanes);
    even = fmadd(a, a, even);
    odd = fmadd(b, b, odd);
  }
  const float mean = reduce_add(add(even, odd)) / static_cast<float>(row.size);
  const F32x16 scale = broadcast(1.0f / std::sqrt(mean + row.eps));
  for (int64_t i = 0; i < row.padded; i += kLanes) {
    store_from_f32(out + i, mul(mul(load(row.x + i), scale), load(row.weight + i)));
  }
}

CHAIRLIFT_DEFINE_KERNELS(RowKernels, row_kernels) = {rms_norm<float>, rms_norm<bf16>};

}  // namespace chairlift::CHAIRLIFT_ISA
