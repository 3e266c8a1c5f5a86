// The two products of attention over int8 K and V on AMX tiles, 64 products deep. Part of
// attention_isa.cpp, for the amx level only.
//
// K groups are tiles where they lie; where a head is narrower than a tile, q has zeros and what is
// read of K behind the group does not count. V of four groups is put together into tiles of 64
// tokens x 16 dimensions first.
#pragma once

#include "attention_amx.h"
#include "attention_int8_products.h"

namespace chairlift::CHAIRLIFT_ISA {

class AmxQuantisedProducts {
 public:
  static constexpr bool kQuantised = true;
  static constexpr int kScoreStride = kTileRows * kGroupTokens;  // from group to group
  static constexpr int kGroupsAtOnce = 4;

  explicit AmxQuantisedProducts(AttentionScratch& scratch) : scratch_(scratch) {}

  // Sets the tile shapes for this many rows; cheap while they stay the same.
  void begin(int rows) {
    if (rows == configured_rows_) return;
    configure(rows);
    configured_rows_ = rows;
  }
  void end() {
    if (configured_rows_ != 0) _tile_release();
    configured_rows_ = 0;
  }

  // Groups of K that come next.
  void fetch_keys(const std::byte* const* k, int groups, int dim) {
    for (int i = 0; i < groups; i++) fetch_for_tiles(k[i], dim * kGroupTokens);
  }

  // One row of whole numbers becomes row `row` of q.
  void store_query(int row, const float* whole, int dim) {
    int8_t* q = queries() + row * padded(dim);
    for (int i = 0; i < padded(dim); i += kLanes) {
      store_bytes(q + i, i < dim ? load(whole + i) : zero(), 0);
    }
  }

  // scores[g][r][:] = q[r] . k of group g, as 32-bit whole numbers; up to four groups.
  void scores(int /*rows*/, int dim, const std::byte* const* k, int groups, float* out) {
    settle_memory();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < dim; i += 64) {
      _tile_loadd(4, queries() + i, padded(dim));
      const int offset = i * kGroupTokens;
      _tile_loadd(6, k[0] + offset, 64);
      _tile_dpbssd(0, 4, 6);
      if (groups > 1) {
        _tile_loadd(7, k[1] + offset, 64);
        _tile_dpbssd(1, 4, 7);
      }
      if (groups > 2) {
        _tile_loadd(6, k[2] + offset, 64);
        _tile_dpbssd(2, 4, 6);
      }
      if (groups > 3) {
        _tile_loadd(7, k[3] + offset, 64);
        _tile_dpbssd(3, 4, 7);
      }
    }
    _tile_stored(0, out, 64);
    if (groups > 1) _tile_stored(1, out + kScoreStride, 64);
    if (groups > 2) _tile_stored(2, out + 2 * kScoreStride, 64);
    if (groups > 3) _tile_stored(3, out + 3 * kScoreStride, 64);
    settle_memory();
  }

  // 16 weights in [0, 32767], to be rounded.
  CHAIRLIFT_INLINE void store_weights(int group, int row, F32x16 v) {
    store_split(weights(), group, row, v);
  }
  // Weights of the groups that fill the last tile up are zero.
  void pad_weights(int groups, int row) {
    for (int group = groups; group % 4 != 0; group++) {
      std::memset(weight_bytes(weights(), group, 0, row), 0, kGroupTokens);
      std::memset(weight_bytes(weights(), group, 1, row), 0, kGroupTokens);
    }
  }

  // out[r] += scales[r] * sum over groups and tokens of weights[g][r][token] v[g][token].
  void values(int rows, int dim, const std::byte* const* v, int groups, const float* scales,
              float* out) {
    make_tiles(v, groups, dim / kLanes);
    settle_memory();
    const int tiles = (groups + 3) / 4;
    int column = 0;
    for (; column + 2 <= dim / kLanes; column += 2) {
      value_columns<2>(rows, dim, tiles, column, scales, out);
    }
    if (column < dim / kLanes) value_columns<1>(rows, dim, tiles, column, scales, out);
  }

 private:
  static constexpr int kTileBytes = 1024;

  static int padded(int dim) { return (dim + 63) / 64 * 64; }
  int8_t* queries() const { return reinterpret_cast<int8_t*>(scratch_.q); }
  uint8_t* weights() const { return reinterpret_cast<uint8_t*>(scratch_.weights); }

  // g++ 12's tile intrinsics do not say that they read memory: nothing may be moved across them.
  static CHAIRLIFT_INLINE void settle_memory() { asm volatile("" : : : "memory"); }

  // Tiles 0-3: sums. 4, 5: rows of q or weights. 6, 7: 64 dimensions of K or tokens of V.
  static void configure(int rows) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {0, 0, 0, 0, 0, 0, 16, 16};
    } shapes;
    for (int tile = 0; tile < 6; tile++) shapes.rows[tile] = static_cast<uint8_t>(rows);
    asm volatile("" : : "r"(&shapes) : "memory");  // see settle_memory
    _tile_loadconfig(&shapes);
  }

  // v_tiles: [four groups][column][16 rows of 64 bytes].
  void make_tiles(const std::byte* const* v, int groups, int columns) {
    for (int group = 0; group < groups; group++) {
      const std::byte* from = v[group];
      std::byte* to = scratch_.v_tiles + group / 4 * columns * kTileBytes + group % 4 * 256;
      for (int column = 0; column < columns; column++, from += 256, to += kTileBytes) {
        for (int row = 0; row < 256; row += 64) store_words(to + row, load_words(from + row));
      }
    }
  }

  template <int C>
  void value_columns(int rows, int dim, int tiles, int column, const float* scales, float* out) {
    const std::byte* values = scratch_.v_tiles + column * kTileBytes;
    const uint8_t* upper = weights();
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (C > 1) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int i = 0; i < tiles; i++) {
      _tile_loadd(4, upper, 64);
      _tile_loadd(5, upper + kTileBytes, 64);
      _tile_loadd(6, values, 64);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 5, 6);
      if constexpr (C > 1) {
        _tile_loadd(7, values + kTileBytes, 64);
        _tile_dpbusd(2, 4, 7);
        _tile_dpbusd(3, 5, 7);
      }
      upper += 2 * kTileBytes;
      values += dim / kLanes * kTileBytes;
    }
    alignas(64) uint32_t sums[2 * C][kTileRows * kLanes];
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    if constexpr (C > 1) {
      _tile_stored(2, sums[2], 64);
      _tile_stored(3, sums[3], 64);
    }
    settle_memory();
    asm volatile("" : : "r"(sums) : "memory");
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < C; c++) {
        const U32x16 high = times_256(load_words(sums[2 * c] + r * kLanes));
        const U32x16 both = add_words(high, load_words(sums[2 * c + 1] + r * kLanes));
        add_scaled(out + r * dim + (column + c) * kLanes, both, scales[r]);
      }
    }
  }

  AttentionScratch& scratch_;
  int configured_rows_ = 0;
};

// Tiles for many rows, vectors for the few of a decode, whose loads overlap where a tile's would
// wait for each other. Sums of whole numbers are the same either way.
class AnyRowsProducts {
 public:
  static constexpr bool kQuantised = true;
  static constexpr int kScoreStride = kTileRows * kGroupTokens;  // from group to group
  static constexpr int kGroupsAtOnce = 4;

  explicit AnyRowsProducts(AttentionScratch& scratch) : tiles_(scratch), vectors_(scratch) {}

  void begin(int rows) {
    few_ = rows <= kBlockRows;
    if (!few_) tiles_.begin(rows);
  }
  void end() { tiles_.end(); }
  void fetch_keys(const std::byte* const* k, int groups, int dim) {
    if (!few_) tiles_.fetch_keys(k, groups, dim);
  }
  void store_query(int row, const float* whole, int dim) {
    few_ ? vectors_.store_query(row, whole, dim) : tiles_.store_query(row, whole, dim);
  }
  void scores(int rows, int dim, const std::byte* const* k, int groups, float* out) {
    few_ ? vectors_.scores(rows, dim, k, groups, out) : tiles_.scores(rows, dim, k, groups, out);
  }
  CHAIRLIFT_INLINE void store_weights(int group, int row, F32x16 v) {
    tiles_.store_weights(group, row, v);  // where vectors look for them too
  }
  void pad_weights(int groups, int row) {
    if (!few_) tiles_.pad_weights(groups, row);
  }
  void values(int rows, int dim, const std::byte* const* v, int groups, const float* scales,
              float* out) {
    few_ ? vectors_.values(rows, dim, v, groups, scales, out)
         : tiles_.values(rows, dim, v, groups, scales, out);
  }

 private:
  AmxQuantisedProducts tiles_;
  QuantisedProducts<ByteDots> vectors_;
  bool few_ = true;
};

}  // namespace chairlift::CHAIRLIFT_ISA
