// The two products of attention over int8 K and V on AMX tiles, 64 products deep. Part of
// attention_isa.cpp, for the amx level only.
//
// K groups are tiles where they lie; where a head is narrower than a tile, q has zeros and what is
// read of K behind the group does not count. V of four groups is put together into tiles of 64
// tokens x 16 dimensions first. Two tiles of rows share what is loaded of K.
#pragma once

#include "attention_int8_products.h"
#include "attention_tiles.h"

namespace chairlift::CHAIRLIFT_ISA {

class AmxQuantisedProducts {
 public:
  explicit AmxQuantisedProducts(AttentionScratch& scratch) : scratch_(scratch) {}

  // The tiles of an item have this many rows, or fewer.
  void begin(int rows) { shapes_.begin(rows); }
  void end() { shapes_.end(); }

  // One row of whole numbers becomes a row of a tile's q.
  void store_query(const RowTile& tile, int row, const float* whole, int dim) const {
    int8_t* q = queries(tile) + row * padded(dim);
    for (int i = 0; i < padded(dim); i += kLanes) {
      store_bytes(q + i, i < dim ? load(whole + i) : zero(), 0);
    }
  }

  // Puts the tiles of V together: [four groups][column][16 rows of 64 bytes].
  void begin_chunk(const ChunkGroups& groups, int dim) const {
    const int columns = dim / kLanes;
    for (int group = 0; group < groups.count; group++) {
      const std::byte* from = groups.v[group];
      std::byte* to = scratch_.v_tiles + group / 4 * columns * kTileBytes + group % 4 * 256;
      for (int i = 0; i < columns; i++) copy_lines(to + i * kTileBytes, from + i * 256, 256);
    }
  }

  // Scores of up to two tiles: q[r] . k of each group, as 32-bit whole numbers. Calls at_group(g)
  // on the way to group g.
  template <class AtGroup>
  void scores(const RowTile* tiles, int count, int dim, const ChunkGroups& groups,
              const AtGroup& at_group) const {
    settle_memory();
    fetch_keys(groups, 0, dim);
    for (int group = 0; group < groups.count; group += 4) {
      for (int i = group; i < min_int(group + 4, groups.count); i++) at_group(i);
      fetch_keys(groups, group + 4, dim);
      if (count == 1) {
        score_four(tiles[0], dim, groups, group);
      } else {
        score_both(tiles, dim, groups, group);
        if (group + 2 < groups.count) score_both(tiles, dim, groups, group + 2);
      }
    }
    settle_memory();
  }

  // out[r] += weight_scales[r] * sum over groups and tokens of weights[g][r][token] v[g][token].
  void values(const RowTile* tiles, int count, int dim) const {
    settle_memory();
    for (int i = 0; i < count; i++) {
      int column = 0;
      for (; column + 2 <= dim / kLanes; column += 2) value_columns<2>(tiles[i], dim, column);
      if (column < dim / kLanes) value_columns<1>(tiles[i], dim, column);
    }
  }

 private:
  static int padded(int dim) { return (dim + 63) / 64 * 64; }
  int8_t* queries(const RowTile& tile) const {
    return reinterpret_cast<int8_t*>(scratch_.q[tile.index]);
  }
  // The next four groups from one on.
  static CHAIRLIFT_INLINE void fetch_keys(const ChunkGroups& groups, int first, int dim) {
    for (int i = first; i < min_int(first + 4, groups.count); i++) {
      fetch_for_tiles(groups.k[i], dim * kGroupTokens);
    }
  }

  // Up to four groups.
  void score_four(const RowTile& tile, int dim, const ChunkGroups& groups, int first) const {
    const int8_t* q = queries(tile);
    const std::byte* const* k = groups.k + first;
    const int count = groups.count - first;
    float* out = scratch_.scores[tile.index] + first * kScoreStride;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < dim; i += 64) {
      const int offset = i * kGroupTokens;
      _tile_loadd(4, q + i, padded(dim));
      _tile_loadd(6, k[0] + offset, 64);
      _tile_dpbssd(0, 4, 6);
      if (count > 1) {
        _tile_loadd(7, k[1] + offset, 64);
        _tile_dpbssd(1, 4, 7);
      }
      if (count > 2) {
        _tile_loadd(6, k[2] + offset, 64);
        _tile_dpbssd(2, 4, 6);
      }
      if (count > 3) {
        _tile_loadd(7, k[3] + offset, 64);
        _tile_dpbssd(3, 4, 7);
      }
    }
    _tile_stored(0, out, 64);
    if (count > 1) _tile_stored(1, out + kScoreStride, 64);
    if (count > 2) _tile_stored(2, out + 2 * kScoreStride, 64);
    if (count > 3) _tile_stored(3, out + 3 * kScoreStride, 64);
  }

  // Up to two groups of two tiles.
  void score_both(const RowTile* tiles, int dim, const ChunkGroups& groups, int first) const {
    const int8_t *upper = queries(tiles[0]), *lower = queries(tiles[1]);
    const std::byte* const* k = groups.k + first;
    const bool second = first + 1 < groups.count;
    const int at = first * kScoreStride;
    float* upper_out = scratch_.scores[tiles[0].index] + at;
    float* lower_out = scratch_.scores[tiles[1].index] + at;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < dim; i += 64) {
      const int offset = i * kGroupTokens;
      _tile_loadd(4, upper + i, padded(dim));
      _tile_loadd(5, lower + i, padded(dim));
      _tile_loadd(6, k[0] + offset, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 5, 6);
      if (!second) continue;
      _tile_loadd(7, k[1] + offset, 64);
      _tile_dpbssd(2, 4, 7);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, upper_out, 64);
    _tile_stored(1, lower_out, 64);
    if (!second) return;
    _tile_stored(2, upper_out + kScoreStride, 64);
    _tile_stored(3, lower_out + kScoreStride, 64);
  }

  template <int C>
  void value_columns(const RowTile& tile, int dim, int column) const {
    const std::byte* v = scratch_.v_tiles + column * kTileBytes;
    const float* weights = scratch_.scores[tile.index];
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (C > 1) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int group = 0; group < tile.groups; group += 4) {
      _tile_loadd(4, weights, 64);
      _tile_loadd(5, weights + kScoreStride, 64);
      _tile_loadd(6, v, 64);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 5, 6);
      if constexpr (C > 1) {
        _tile_loadd(7, v + kTileBytes, 64);
        _tile_dpbusd(2, 4, 7);
        _tile_dpbusd(3, 5, 7);
      }
      weights += 4 * kScoreStride;
      v += dim / kLanes * kTileBytes;
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
    float* out = scratch_.out[tile.index] + column * kLanes;
    for (int r = 0; r < tile.count; r++) {
      for (int c = 0; c < C; c++) {
        const U32x16 high = times_256(load_words(sums[2 * c] + r * kLanes));
        const U32x16 both = add_words(high, load_words(sums[2 * c + 1] + r * kLanes));
        add_scaled(out + r * dim + c * kLanes, both, tile.weight_scales[r]);
      }
    }
  }

  AttentionScratch& scratch_;
  TileShapes shapes_;
};

// Tiles for many rows, vectors for the few of a decode, whose loads overlap where a tile's would
// wait for each other. Sums of whole numbers are the same either way.
class AnyRowsProducts {
 public:
  static constexpr bool kQuantised = true;
  static constexpr bool kCoarseWeights = true;
  static constexpr int kWeightGroups = ByteDots::kWeightGroups;

  explicit AnyRowsProducts(AttentionScratch& scratch) : tiles_(scratch), vectors_(scratch) {}

  void begin(int rows) {
    few_ = rows <= kBlockRows;
    if (!few_) tiles_.begin(rows);
  }
  void end() { tiles_.end(); }
  int lead() const { return 0; }
  void begin_chunk(const ChunkGroups& groups, int dim) const {
    if (!few_) tiles_.begin_chunk(groups, dim);
  }
  void store_query(const RowTile& tile, int row, const float* whole, int dim) {
    few_ ? vectors_.store_query(tile, row, whole, dim) : tiles_.store_query(tile, row, whole, dim);
  }
  template <class AtGroup>
  void scores(const RowTile* tiles, int count, int dim, const ChunkGroups& groups,
              const AtGroup& at_group) const {
    few_ ? vectors_.scores(tiles, count, dim, groups, at_group)
         : tiles_.scores(tiles, count, dim, groups, at_group);
  }
  // Tiles look for weights where vectors do.
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    store_split(scores, v);
  }
  void values(const RowTile* tiles, int count, int dim, const ChunkGroups& groups) const {
    few_ ? vectors_.values(tiles, count, dim, groups) : tiles_.values(tiles, count, dim);
  }

 private:
  AmxQuantisedProducts tiles_;
  QuantisedProducts<ByteDots> vectors_;
  bool few_ = true;
};

}  // namespace chairlift::CHAIRLIFT_ISA
