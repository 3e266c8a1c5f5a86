#include "quantised_rows.h"

#include "gemm.h"

namespace chairlift {
namespace {

// One stage of the transform. A constant distance lets the compiler use vectors.
template <int kDistance>
void butterflies(float* block) {
  for (int first = 0; first < kRotationBlock; first += 2 * kDistance) {
    for (int i = first; i < first + kDistance; i++) {
      const float a = block[i], b = block[i + kDistance];
      block[i] = a + b;
      block[i + kDistance] = a - b;
    }
  }
}

}  // namespace

void rotate_back(float* rotated, int64_t size) {
  for (float* block = rotated; block < rotated + size; block += kRotationBlock) {
    butterflies<1>(block);
    butterflies<2>(block);
    butterflies<4>(block);
    butterflies<8>(block);
    butterflies<16>(block);
    butterflies<32>(block);
    for (int i = 0; i < kRotationBlock; i++) block[i] *= 1.0f / kRotationBlock;
  }
}

// Rows an odd number of cache lines apart do not compete for the same few cache sets.
QuantisedRows::QuantisedRows(int max_rows, int max_columns)
    : stride_((round_up(max_columns, kRotationBlock) / 64 | 1) * 64),
      memory_(static_cast<size_t>(round_up(max_rows, kRowPadding) * stride_)),
      scales_(static_cast<size_t>(max_rows)) {}

}  // namespace chairlift
