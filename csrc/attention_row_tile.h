// Up to 16 rows of an item on their way through attention. Part of attention_isa.cpp.
#pragma once

#include "attention.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kScoreStride = kTileRows * kGroupTokens;  // from group to group

CHAIRLIFT_INLINE int min_int(int a, int b) { return a < b ? a : b; }
CHAIRLIFT_INLINE int max_int(int a, int b) { return a > b ? a : b; }

// Row r of the item is query token r / group, head r % group. What the arrays hold behind the last
// row does not count.
struct RowTile {
  int index;         // where q, scores, weights and output lie in scratch memory
  int first, count;  // rows of the item
  int groups;        // of the chunk, from its first one on, that a row may see
  int positions[kTileRows];
  alignas(64) float maxima[kTileRows];  // of the scores so far, times the factor
  float sums[kTileRows];
  float factors[kTileRows];        // from what the first product gives to exponents of 2
  float kept[kTileRows];           // what the output so far is to be scaled by
  float weight_scales[kTileRows];  // of whole weights

  int last_position() const { return positions[count - 1]; }
};

}  // namespace chairlift::CHAIRLIFT_ISA
