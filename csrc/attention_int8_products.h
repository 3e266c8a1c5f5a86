// The two products of attention over int8 K and V, in whole numbers, for up to 16 rows. Part of
// attention_isa.cpp.
//
// q is rounded to int8 like K, with one scale a row. Softmax weights, times the scales of V, are
// rounded to 15 bits of what they may be at most in their row and chunk; where products are of
// bytes they are split into two. Sums are exact, so every instruction set finds the same ones: at
// most 127 * 127 * 256 and 32767 * 127 * 512 < 2^31.
#pragma once

#include "attention_products.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

#if defined(__AVX512VNNI__)

// Numbers in [0, 32767] of four groups, rounded, where their scores were: upper bytes of all four
// at the first one's, lower bytes at the second one's.
static CHAIRLIFT_INLINE void store_split(float* scores, const F32x16 (&v)[4]) {
  const auto pack = [&](int i) __attribute__((always_inline)) {
    return _mm512_packus_epi32(_mm512_cvtps_epi32(v[i]), _mm512_cvtps_epi32(v[i + 1]));
  };
  const __m512i a = pack(0), b = pack(2), low = _mm512_set1_epi16(0xff);
  // Packing goes by quarters of registers: words of four bytes come out in the order 0 4 8 12 1 ...
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const auto store_packed = [&](float* out, __m512i x, __m512i y) __attribute__((always_inline)) {
    store_words(out, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(x, y)));
  };
  store_packed(scores, _mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
  store_packed(scores + kScoreStride, _mm512_and_si512(a, low), _mm512_and_si512(b, low));
}

// Bytes with the machine's dot product of four. It takes one side unsigned: K plus 128, which the
// sums start without.
struct ByteDots {
  using Query = int8_t;
  static constexpr int kHalves = 2;  // of a weight
  struct Keys {
    using Row = int8_t;
    using Sum = U32x16;
    static constexpr int kDepth = 4;
    struct Step {
      U32x16 k;
    };
    static CHAIRLIFT_INLINE Step load_step(const std::byte* p) {
      return {_mm512_xor_si512(load_words(p), broadcast_word(0x80808080))};
    }
    static CHAIRLIFT_INLINE U32x16 accumulate(U32x16 sum, const Step& step, const int8_t* row) {
      return dot_bytes(sum, step.k, broadcast_word(load_word(row)));
    }
  };
  struct Values {
    using Row = uint8_t;
    using Sum = U32x16;
    static constexpr int kDepth = 4;
    struct Step {
      U32x16 v;
    };
    static CHAIRLIFT_INLINE Step load_step(const std::byte* p) { return {load_words(p)}; }
    static CHAIRLIFT_INLINE U32x16 accumulate(U32x16 sum, const Step& step, const uint8_t* row) {
      return dot_bytes(sum, broadcast_word(load_word(row)), step.v);
    }
  };

  static CHAIRLIFT_INLINE void store_query(int8_t* q, F32x16 whole) { store_bytes(q, whole, 0); }
  // What a row's sums are to start with, given the sum of its q.
  static CHAIRLIFT_INLINE int first_sum(int query_sum) { return -128 * query_sum; }

  static constexpr int kWeightGroups = 4;  // whose weights are stored together
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    store_split(scores, v);
  }
  // Where the weights of a group begin, given where its scores were.
  static CHAIRLIFT_INLINE const uint8_t* weights_of(const float* tile, int group, int half,
                                                    int row) {
    const float* line = tile + (group / 4 * 4 + half) * kScoreStride + row * kGroupTokens;
    return reinterpret_cast<const uint8_t*>(line) + group % 4 * kGroupTokens;
  }
  static constexpr int kWeightStride = 64;  // from row to row
};

#endif

// Bytes widened to 16 bits in registers, rows stored so: each four as 0, 2, 1, 3, the order in
// which a word splits into even and odd bytes.
struct WidenedDots {
  using Query = int16_t;
  static constexpr int kHalves = 1;
  struct Keys {
    using Row = int16_t;
    using Sum = U32x16;
    static constexpr int kDepth = 4;
    struct Step {
      U32x16 even, odd;
    };
    static CHAIRLIFT_INLINE Step load_step(const std::byte* p) {
      const U32x16 fours = load_words(p);
      return {even_bytes(fours), odd_bytes(fours)};
    }
    static CHAIRLIFT_INLINE U32x16 accumulate(U32x16 sum, const Step& step, const int16_t* row) {
      sum = dot_halves(sum, step.even, broadcast_word(load_word(row)));
      return dot_halves(sum, step.odd, broadcast_word(load_word(row + 2)));
    }
  };
  using Values = Keys;

  static CHAIRLIFT_INLINE void store_query(int16_t* q, F32x16 whole) {
    alignas(64) float lanes[kLanes];
    store(lanes, whole);
    for (int i = 0; i < kLanes; i++) {
      q[i] = static_cast<int16_t>(lanes[(i & ~3) + (i & 1) * 2 + (i & 2) / 2]);
    }
  }
  static CHAIRLIFT_INLINE int first_sum(int /*query_sum*/) { return 0; }

  static constexpr int kWeightGroups = 1;
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    store_query(reinterpret_cast<int16_t*>(scores), round_to_int(v[0]));
  }
  static CHAIRLIFT_INLINE const int16_t* weights_of(const float* tile, int group, int /*half*/,
                                                    int row) {
    return reinterpret_cast<const int16_t*>(tile + group * kScoreStride + row * kGroupTokens);
  }
  static constexpr int kWeightStride = 2 * kGroupTokens;  // from row to row
};

// out += sums * scale, element by element.
static CHAIRLIFT_INLINE void add_scaled(float* out, U32x16 sums, float scale) {
  store(out, fmadd(to_floats(sums), broadcast(scale), load(out)));
}

template <class Dots>
class QuantisedProducts {
 public:
  using Query = typename Dots::Query;
  static constexpr bool kQuantised = true;
  static constexpr bool kCoarseWeights = true;
  static constexpr int kWeightGroups = Dots::kWeightGroups;

  explicit QuantisedProducts(AttentionScratch& scratch) : scratch_(scratch) {}
  void begin(int /*rows*/) {}
  void begin_chunk(const ChunkGroups& /*groups*/, int /*dim*/) {}
  void end() {}
  int lead() const { return 0; }

  // One row of whole numbers becomes a row of a tile's q.
  void store_query(const RowTile& tile, int row, const float* whole, int dim) {
    F32x16 sum = zero();
    for (int i = 0; i < dim; i += kLanes) {
      const F32x16 v = load(whole + i);
      Dots::store_query(queries(tile) + row * dim + i, v);
      sum = add(sum, v);
    }
    first_sums_[tile.index][row] = Dots::first_sum(static_cast<int>(reduce_add(sum)));
  }

  // Scores of each tile: q[r] . k of each group, as 32-bit whole numbers.
  template <class AtGroup>
  void scores(const RowTile* tiles, int count, int dim, const ChunkGroups& groups,
              const AtGroup& at_group) const {
    for (int i = 0; i < count; i++) score_tile(tiles[i], dim, groups, at_group);
  }

  // Weights of a row, in [0, 32767], to be rounded; where the scores of the first group were.
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    Dots::store_weights(scores, v);
  }

  // out[r] += weight_scales[r] * sum over groups and tokens of weights[g][r][token] v[g][token].
  void values(const RowTile* tiles, int count, int dim, const ChunkGroups& groups) const {
    for (int i = 0; i < count; i++) add_values(tiles[i], dim, groups);
  }

 private:
  Query* queries(const RowTile& tile) const {
    return reinterpret_cast<Query*>(scratch_.q[tile.index]);
  }

  template <class AtGroup>
  void score_tile(const RowTile& tile, int dim, const ChunkGroups& groups,
                  const AtGroup& at_group) const {
    const Query* q = queries(tile);
    const int* first_sums = first_sums_[tile.index];
    float* out = scratch_.scores[tile.index];
    for_blocks(tile.count, tile.groups, [&]<int R, int C>(int row, int group)
                                            __attribute__((always_inline)) {
      U32x16 sums[R][C];
      const std::byte* columns[C];
      for (int c = 0; c < C; c++) {
        if (row == 0) at_group(group + c);
        columns[c] = groups.k[group + c];
        for (int r = 0; r < R; r++) {
          sums[r][c] = broadcast_word(static_cast<uint32_t>(first_sums[row + r]));
        }
      }
      multiply<typename Dots::Keys>(sums, q + row * dim, dim, columns, dim / 4);
      for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
          store_words(out + (group + c) * kScoreStride + (row + r) * kGroupTokens, sums[r][c]);
        }
      }
    });
  }

  void add_values(const RowTile& tile, int dim, const ChunkGroups& groups) const {
    const float* weights = scratch_.scores[tile.index];
    float* out = scratch_.out[tile.index];
    for_blocks(tile.count, dim / kLanes, [&]<int R, int C>(int row, int column)
                                             __attribute__((always_inline)) {
      U32x16 sums[R][C];
      for (int half = 0; half < Dots::kHalves; half++) {
        for (int r = 0; r < R; r++) {
          // The upper halves count 256 times.
          for (int c = 0; c < C; c++) sums[r][c] = half == 0 ? zero_words() : times_256(sums[r][c]);
        }
        for (int group = 0; group < tile.groups; group++) {
          const std::byte* columns[C];
          for (int c = 0; c < C; c++) columns[c] = groups.v[group] + 256 * (column + c);
          multiply<typename Dots::Values>(sums, Dots::weights_of(weights, group, half, row),
                                          Dots::kWeightStride, columns, kGroupTokens / 4);
        }
      }
      for (int r = 0; r < R; r++) {
        float* block = out + (row + r) * dim + column * kLanes;
        for (int c = 0; c < C; c++) {
          add_scaled(block + c * kLanes, sums[r][c], tile.weight_scales[row + r]);
        }
      }
    });
  }

  AttentionScratch& scratch_;
  int first_sums_[kItemTiles][kTileRows];
};

}  // namespace chairlift::CHAIRLIFT_ISA
