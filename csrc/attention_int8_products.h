// The two products of attention over int8 K and V, in whole numbers, for up to 16 rows. Part of
// attention_isa.cpp.
//
// q is rounded to int8 like K, with one scale a row. Softmax weights, times the scales of V, are
// rounded to 15 bits of the largest of their row and chunk; where products are of bytes they are
// split into two. Sums are exact, so every instruction set finds the same ones: at most
// 127 * 127 * 256 and 32767 * 127 * 256 < 2^31.
#pragma once

#include "attention_products.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr float kWeightLevels = 32767.0f;

#if defined(__AVX512VNNI__)

// Where bytes of the weights of a group and row lie: four groups to a row of a tile.
static CHAIRLIFT_INLINE uint8_t* weight_bytes(uint8_t* weights, int group, int half, int row) {
  return weights + (group / 4 * 2 + half) * (kTileRows * 64) + row * 64 + group % 4 * kGroupTokens;
}

// Numbers in [0, 32767], rounded, as upper and lower bytes.
static CHAIRLIFT_INLINE void store_split(uint8_t* weights, int group, int row, F32x16 v) {
  const __m512i whole = _mm512_cvtps_epi32(v);
  const __m128i upper = _mm512_cvtepi32_epi8(_mm512_srli_epi32(whole, 8));
  const __m128i lower = _mm512_cvtepi32_epi8(whole);
  uint8_t* out = weight_bytes(weights, group, 0, row);
  _mm_store_si128(reinterpret_cast<__m128i*>(out), upper);
  _mm_store_si128(reinterpret_cast<__m128i*>(out + kTileRows * 64), lower);
}

// Bytes with the machine's dot product of four. It takes one side unsigned: K plus 128, which the
// sums start without.
struct ByteDots {
  using Query = int8_t;
  using Weights = uint8_t;
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

  static CHAIRLIFT_INLINE void store_weights(uint8_t* weights, int group, int row, F32x16 v) {
    store_split(weights, group, row, v);
  }
  static CHAIRLIFT_INLINE const uint8_t* weights_of(const uint8_t* weights, int group, int half,
                                                    int row) {
    return weight_bytes(const_cast<uint8_t*>(weights), group, half, row);
  }
  static constexpr int kWeightStride = 64;  // from row to row
};

#endif

// Bytes widened to 16 bits in registers, rows stored so: each four as 0, 2, 1, 3, the order in
// which a word splits into even and odd bytes.
struct WidenedDots {
  using Query = int16_t;
  using Weights = int16_t;
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

  static CHAIRLIFT_INLINE void store_weights(int16_t* weights, int group, int row, F32x16 v) {
    store_query(weights + (group * kTileRows + row) * kGroupTokens, round_to_int(v));
  }
  static CHAIRLIFT_INLINE const int16_t* weights_of(const int16_t* weights, int group,
                                                    int /*half*/, int row) {
    return weights + (group * kTileRows + row) * kGroupTokens;
  }
  static constexpr int kWeightStride = kGroupTokens;
};

// out += sums * scale, element by element.
static CHAIRLIFT_INLINE void add_scaled(float* out, U32x16 sums, float scale) {
  store(out, fmadd(to_floats(sums), broadcast(scale), load(out)));
}

template <class Dots>
class QuantisedProducts {
 public:
  using Query = typename Dots::Query;
  using Weights = typename Dots::Weights;
  static constexpr bool kQuantised = true;
  static constexpr int kScoreStride = kTileRows * kGroupTokens;  // from group to group
  static constexpr int kGroupsAtOnce = kBlockColumns;

  explicit QuantisedProducts(AttentionScratch& scratch) : scratch_(scratch) {}
  void begin(int /*rows*/) {}
  void end() {}
  void fetch_keys(const std::byte* const* /*k*/, int /*groups*/, int /*dim*/) {}

  // One row of whole numbers becomes row `row` of q.
  void store_query(int row, const float* whole, int dim) {
    F32x16 sum = zero();
    for (int i = 0; i < dim; i += kLanes) {
      const F32x16 v = load(whole + i);
      Dots::store_query(queries() + row * dim + i, v);
      sum = add(sum, v);
    }
    first_sums_[row] = Dots::first_sum(static_cast<int>(reduce_add(sum)));
  }

  // scores[g][r][:] = q[r] . k of group g, as 32-bit whole numbers.
  void scores(int rows, int dim, const std::byte* const* k, int groups, float* out) {
    for_blocks(rows, groups, [&]<int R, int C>(int row, int group) __attribute__((always_inline)) {
      U32x16 sums[R][C];
      const std::byte* columns[C];
      for (int c = 0; c < C; c++) {
        columns[c] = k[group + c];
        for (int r = 0; r < R; r++) {
          sums[r][c] = broadcast_word(static_cast<uint32_t>(first_sums_[row + r]));
        }
      }
      multiply<typename Dots::Keys>(sums, queries() + row * dim, dim, columns, dim / 4);
      for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
          store_words(out + (group + c) * kScoreStride + (row + r) * kGroupTokens, sums[r][c]);
        }
      }
    });
  }

  // 16 weights in [0, 32767], to be rounded.
  CHAIRLIFT_INLINE void store_weights(int group, int row, F32x16 v) {
    Dots::store_weights(weights(), group, row, v);
  }
  // Groups behind the last one that take part all the same: none.
  void pad_weights(int /*groups*/, int /*row*/) {}

  // out[r] += scales[r] * sum over groups and tokens of weights[g][r][token] v[g][token].
  void values(int rows, int dim, const std::byte* const* v, int groups, const float* scales,
              float* out) {
    for_blocks(rows, dim / kLanes, [&]<int R, int C>(int row, int column)
                                       __attribute__((always_inline)) {
      U32x16 sums[R][C];
      for (int half = 0; half < Dots::kHalves; half++) {
        for (int r = 0; r < R; r++) {
          // The upper halves count 256 times.
          for (int c = 0; c < C; c++) sums[r][c] = half == 0 ? zero_words() : times_256(sums[r][c]);
        }
        for (int group = 0; group < groups; group++) {
          const std::byte* columns[C];
          for (int c = 0; c < C; c++) columns[c] = v[group] + 256 * (column + c);
          multiply<typename Dots::Values>(sums, Dots::weights_of(weights(), group, half, row),
                                          Dots::kWeightStride, columns, kGroupTokens / 4);
        }
      }
      for (int r = 0; r < R; r++) {
        float* block = out + (row + r) * dim + column * kLanes;
        for (int c = 0; c < C; c++) add_scaled(block + c * kLanes, sums[r][c], scales[row + r]);
      }
    });
  }

 private:
  Query* queries() const { return reinterpret_cast<Query*>(scratch_.q); }
  Weights* weights() const { return reinterpret_cast<Weights*>(scratch_.weights); }

  AttentionScratch& scratch_;
  int first_sums_[kTileRows];
};

}  // namespace chairlift::CHAIRLIFT_ISA
