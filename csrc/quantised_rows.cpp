#include "quantised_rows.h"

#include "gemm.h"

namespace chairlift {

void rotate_back(float* rotated, int64_t size) {
  for (float* block = rotated; block < rotated + size; block += kRotationBlock) {
    for (int distance = 1; distance < kRotationBlock; distance *= 2) {
      for (int i = 0; i < kRotationBlock; i++) {
        if (i & distance) continue;
        const float a = block[i], b = block[i + distance];
        block[i] = a + b;
        block[i + distance] = a - b;
      }
    }
    for (int i = 0; i < kRotationBlock; i++) block[i] *= 1.0f / kRotationBlock;
  }
}

// Rows an odd number of cache lines apart do not compete for the same few cache sets.
QuantisedRows::QuantisedRows(int max_rows, int max_columns)
    : stride_((round_up(max_columns, kRotationBlock) / 64 | 1) * 64),
      memory_(static_cast<size_t>(round_up(max_rows, kRowPadding) * stride_)),
      scales_(static_cast<size_t>(max_rows)) {}

}  // namespace chairlift
