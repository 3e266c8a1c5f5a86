// Online softmax of up to 16 rows over one chunk of context: scores become weights. Part of
// attention_isa.cpp; see attention.h for the formulas.
//
// What is needed once a row - maxima, sums, factors - is computed for all rows at once, a row to a
// lane; no lane depends on another.
#pragma once

#include <cfloat>

#include "attention.h"
#include "attention_context.h"
#include "attention_row_tile.h"
#include "simd_rows.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr float kLog2e = 1.44269504088896341f;

// 2^x for x < 128; exactly 1 at 0 and exactly 0 below -127, -inf included; NaN stays NaN. Minimax
// polynomials of 2^r on [-1/2, 1/2] with p(0) = 1: relative error 1.0e-4, which drowns in the
// rounding of weights to bfloat16 (2e-3) and of K to int8, or 1.9e-7 for float32 weights, rounding
// included. (Between -127 and -126 it is no more than tiny.)
template <bool kCoarse>
CHAIRLIFT_INLINE F32x16 exp2_weight(F32x16 x) {
  const F32x16 shift = broadcast(0x1.8p23f);  // leaves a whole number in the lowest bits
  x = max(broadcast(-127.0f), x);
  const F32x16 biased = add(x, shift);
  const F32x16 rest = sub(x, sub(biased, shift));
  F32x16 p;
  if constexpr (kCoarse) {
    p = broadcast(0x1.c2a218p-5f);
    p = fmadd(p, rest, broadcast(0x1.f00c4ep-3f));
    p = fmadd(p, rest, broadcast(0x1.62f5fap-1f));
  } else {
    p = broadcast(0x1.5bba14p-10f);
    p = fmadd(p, rest, broadcast(0x1.3cea88p-7f));
    p = fmadd(p, rest, broadcast(0x1.c6b752p-5f));
    p = fmadd(p, rest, broadcast(0x1.ebf9bcp-3f));
    p = fmadd(p, rest, broadcast(0x1.62e42ap-1f));
  }
  return add_to_exponent(fmadd(p, rest, broadcast(1.0f)), biased);
}

// Positions [begin, end) of a chunk that a row sees, counted from the chunk's first group on.
struct Visible {
  int begin, end;  // may lie outside of the chunk, on either side

  CHAIRLIFT_INLINE Mask16 lanes(int group) const {
    const int base = group * kGroupTokens;
    return mask_and(first_lanes(end - base), mask_not(first_lanes(begin - base)));
  }
  // Groups [first_whole, last_whole) of `count` are seen whole.
  int first_whole(int count) const {
    return begin <= 0 ? 0 : min_int(count, (begin + kGroupTokens - 1) / kGroupTokens);
  }
  int last_whole(int count) const {
    return max_int(first_whole(count), min_int(count, max_int(end, 0) / kGroupTokens));
  }
};

template <class Products>
class TileSoftmax {
 public:
  TileSoftmax(const Products& products, AttentionScratch& scratch, int sliding_window)
      : products_(products), scratch_(scratch), sliding_window_(sliding_window) {}

  // The first position that a row at `position` sees.
  int window_begin(int position) const {
    const int begin = position - sliding_window_ + 1;
    return sliding_window_ == 0 || begin < 0 ? 0 : begin;
  }

  // Scores of the tile's groups become weights, those of the chunk's other groups zero. Updates the
  // tile's maxima, sums, kept and weight_scales.
  void weigh(const ChunkGroups& groups, RowTile& tile) {
    if (tile.count <= kFewRows) return weigh_rows<kFewRows>(groups, tile);
    weigh_rows<kTileRows>(groups, tile);
  }

 private:
  static constexpr int kFewRows = 4;  // the heads that share a decode's keys are often no more

  // For up to N rows.
  template <int N>
  CHAIRLIFT_INLINE void weigh_rows(const ChunkGroups& groups, RowTile& tile) {
    F32x16 rows[N];
    for (int r = 0; r < N; r++) {
      rows[r] = r < tile.count ? row_maximum(tile, visible(groups, tile.positions[r]), r)
                               : zero();
    }
    // Finite, or a row that sees nothing would lead to -inf - -inf.
    const F32x16 here = max(mul(reduce_max_rows(rows), load(tile.factors)), broadcast(-FLT_MAX));
    const F32x16 before = load(tile.maxima), maximum = max(here, before);
    const F32x16 kept = exp2_weight<false>(sub(before, maximum));
    store(tile.maxima, maximum);
    store(tile.kept, kept);
    alignas(64) float shifts[kTileRows] = {};
    F32x16 unit = broadcast(1.0f);  // of the sums of weights
    if constexpr (Products::kQuantised) {
      choose_levels<N>(groups, tile, shifts);
      store(shifts, sub(load(shifts), here));
      unit = mul(load(tile.weight_scales), exp2_weight<false>(sub(here, maximum)));
      store(tile.weight_scales, unit);
    } else {
      store(shifts, sub(zero(), maximum));
    }
    for (int r = 0; r < tile.count; r++) {
      rows[r] = weigh_row(groups, tile, r, shifts[r]);
    }
    store(tile.sums, fmadd(reduce_add_rows(rows), unit, mul(load(tile.sums), kept)));
  }

  Visible visible(const ChunkGroups& groups, int position) const {
    return {window_begin(position) - groups.first_position, position + 1 - groups.first_position};
  }

  // The largest scores of one row, lane by lane; those of tokens that it must not see become -inf.
  F32x16 row_maximum(const RowTile& tile, const Visible& seen, int r) {
    float* scores = scratch_.scores[tile.index] + (products_.lead() * kTileRows + r) * kGroupTokens;
    const int first = seen.first_whole(tile.groups), last = seen.last_whole(tile.groups);
    const F32x16 none = broadcast(-__builtin_inff());
    F32x16 even = none, odd = none;
    const auto hide = [&](int g) __attribute__((always_inline)) {
      const F32x16 s = select(seen.lanes(g), score_lanes(scores, g), none);
      store(scores + g * kScoreStride, s);
      even = max(s, even);
    };
    for (int g = 0; g < first; g++) hide(g);
    int g = first;
    for (; g + 2 <= last; g += 2) {
      even = max(whole_lanes(scores, g), even);
      odd = max(whole_lanes(scores, g + 1), odd);
    }
    if (g < last) even = max(whole_lanes(scores, g), even);
    for (g = last; g < tile.groups; g++) hide(g);
    return max(even, odd);
  }

  // Scores of a group as the first product left them, as far as the token decides.
  CHAIRLIFT_INLINE F32x16 score_lanes(const float* scores, int g) const {
    const float* s = scores + g * kScoreStride;
    if constexpr (!Products::kQuantised) return load(s);
    return mul(to_floats(load_words(s)), load(scratch_.k_scales + g * kGroupTokens));
  }
  // The same, and where weigh_row looks for them.
  CHAIRLIFT_INLINE F32x16 whole_lanes(float* scores, int g) const {
    const F32x16 s = score_lanes(scores, g);
    if constexpr (Products::kQuantised) store(scores + g * kScoreStride, s);
    return s;
  }

  // Makes one row's weights of its scores; returns their sums, to be summed up.
  F32x16 weigh_row(const ChunkGroups& groups, const RowTile& tile, int r, float shift) const {
    constexpr int N = Products::kWeightGroups;
    float* const row = scratch_.scores[tile.index] + r * kGroupTokens;
    const float* const v_scales = scratch_.v_scales;
    const F32x16 factors = broadcast(tile.factors[r]), shifts = broadcast(shift);
    const int lead = products_.lead(), blocks = (lead + groups.count + N - 1) / N;
    const int count = tile.groups;
    F32x16 sum = zero();
    for (int block = 0; block < blocks; block++) {
      const int first = block * N - lead;
      F32x16 weights[N];
      const auto weigh = [&](int i) __attribute__((always_inline)) {
        const int g = first + i;
        const F32x16 exponent = fmadd(load(row + (block * N + i) * kScoreStride), factors, shifts);
        weights[i] = exp2_weight<Products::kCoarseWeights>(exponent);
        sum = add(sum, weights[i]);
        if constexpr (Products::kQuantised) {
          weights[i] = mul(weights[i], load(v_scales + g * kGroupTokens));
        }
      };
      if (first >= 0 && first + N <= count) {
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) weigh(i);
      } else {
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
          weights[i] = zero();
          if (first + i >= 0 && first + i < count) weigh(i);
        }
      }
      Products::store_weights(row + block * N * kScoreStride, weights);
    }
    return sum;
  }

  // Weights times the scales of V are to use 15 bits: all weights of a row are multiplied by the
  // power of two that brings the largest scale it sees into [2^14, 2^15). Sets its exponents, and
  // weight_scales to its inverses.
  template <int N>
  void choose_levels(const ChunkGroups& groups, RowTile& tile, float* exponents) const {
    for (int r = 0; r < N; r++) {
      if (r > 0 && (r >= tile.count || tile.positions[r] == tile.positions[r - 1])) {
        exponents[r] = exponents[r - 1];
        tile.weight_scales[r] = tile.weight_scales[r - 1];
        continue;
      }
      const float largest = largest_scale(tile.groups, visible(groups, tile.positions[r]));
      uint32_t bits;
      std::memcpy(&bits, &largest, 4);
      // Scales so small that sums of weights might overflow count as more.
      const int magnitude = max_int(static_cast<int>(bits >> 23 & 0xff) - 127, -80);
      const int exponent = kWeightBits - 1 - magnitude;
      exponents[r] = static_cast<float>(exponent);
      bits = static_cast<uint32_t>(127 - exponent) << 23;
      std::memcpy(&tile.weight_scales[r], &bits, 4);
      tile.weight_scales[r] += largest * 0.0f;
    }
  }

  // Of the V that a row sees; NaN if one is.
  float largest_scale(int groups, const Visible& seen) const {
    F32x16 largest = zero(), poison = zero();
    const auto see = [&](F32x16 scales) __attribute__((always_inline)) {
      largest = max(scales, largest);
      poison = fmadd(scales, zero(), poison);
    };
    const float* scales = scratch_.v_scales;
    const int first = seen.first_whole(groups), last = seen.last_whole(groups);
    const auto see_part = [&](int g) __attribute__((always_inline)) {
      see(select(seen.lanes(g), load(scales + g * kGroupTokens), zero()));
    };
    for (int g = 0; g < first; g++) see_part(g);
    for (int g = first; g < last; g++) see(load(scales + g * kGroupTokens));
    for (int g = last; g < groups; g++) see_part(g);
    return reduce_max(largest) + reduce_add(poison);
  }

  const Products& products_;
  AttentionScratch& scratch_;
  const int sliding_window_;
};

}  // namespace chairlift::CHAIRLIFT_ISA
