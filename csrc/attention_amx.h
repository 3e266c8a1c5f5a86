// The two products on AMX tiles: bfloat16 pairs, 16 x 16 outputs an instruction. Part of
// attention_isa.cpp, for the amx level only.
//
// TDPBF16PS sums the products of first elements and of second elements separately over its steps,
// adds the two, and adds that to the tile; every row is on its own, so a row's bits do not depend
// on how many rows the tile has, nor on which products are computed in between.
//
// Every tile is a whole one: 32 dimensions of K, 32 tokens of V. V of two groups is put together
// first; which two follows from their position. What is not there is zeros, which leave a sum as it
// is. Two tiles of rows share what is loaded of K and V: a load costs as much as a product.
#pragma once

#include "attention_context.h"
#include "attention_tiles.h"

namespace chairlift::CHAIRLIFT_ISA {

class AmxProducts {
 public:
  using Row = bf16;
  static constexpr bool kQuantised = false;
  static constexpr bool kCoarseWeights = true;
  static constexpr int kWeightGroups = 2;  // whose weights are stored together

  explicit AmxProducts(AttentionScratch& scratch) : scratch_(scratch) {}

  // The tiles of an item have this many rows, or fewer.
  void begin(int rows) { shapes_.begin(rows); }
  void end() { shapes_.end(); }

  // A row of q, with zeros behind it up to whole steps.
  Row* query_row(const RowTile& tile, int row, int dim) const {
    Row* q = queries(tile) + row * padded(dim);
    if (dim % 32 != 0) std::memset(q + dim, 0, kLanes * sizeof(Row));
    return q;
  }

  // Makes whole tiles of K where they are not.
  void begin_chunk(const ChunkGroups& groups, int dim) {
    lead_ = groups.first_position / kGroupTokens % 2;
    if (dim % 32 == 0) return;
    for (int group = 0; group < groups.count; group++) {
      copy_lines(key_end(group), groups.k[group] + dim / 32 * kTileBytes, 512);
      std::memset(key_end(group) + 512, 0, 512);
    }
  }
  // Groups before the first that weights are stored with.
  int lead() const { return lead_; }

  // Scores of up to two tiles: q[r] . k of each group. Calls at_group(g) on the way to group g.
  template <class AtGroup>
  void scores(const RowTile* tiles, int count, int dim, const ChunkGroups& groups,
              const AtGroup& at_group) const {
    settle_memory();
    const int steps = padded(dim) / 32;
    if (count == 1) {
      switch (steps) {
        case 1: score_rows<1>(tiles[0], dim, groups, at_group); break;
        case 2: score_rows<2>(tiles[0], dim, groups, at_group); break;
        case 3: score_rows<3>(tiles[0], dim, groups, at_group); break;
        default: score_rows<4>(tiles[0], dim, groups, at_group); break;
      }
    } else if (steps == 1) {
      score_both<1>(tiles, dim, groups, at_group);
    } else if (steps == 2) {
      score_both<2>(tiles, dim, groups, at_group);
    } else {
      score_both_long(tiles, dim, groups, at_group);
    }
    settle_memory();
  }

  // Weights of a row, 32 tokens, where the scores of the first of them were.
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    store_two_bf16(reinterpret_cast<bf16*>(scores), v[0], v[1]);
  }

  // out[r] += sum over groups and tokens of weights[g][r][token] v[g][token], out: [rows, dim].
  void values(const RowTile* tiles, int count, int dim, const ChunkGroups& groups) const {
    settle_memory();
    int column = 0;
    if (count == 1) {
      for (; column + 64 <= dim; column += 64) value_columns<4>(tiles[0], dim, groups, column);
      if (dim - column == 48) value_columns<3>(tiles[0], dim, groups, column);
      if (dim - column == 32) value_columns<2>(tiles[0], dim, groups, column);
      if (dim - column == 16) value_columns<1>(tiles[0], dim, groups, column);
    } else {
      for (; column + 32 <= dim; column += 32) both_columns<2>(tiles, dim, groups, column);
      if (dim - column == 16) both_columns<1>(tiles, dim, groups, column);
    }
    settle_memory();
  }

 private:
  static int padded(int dim) { return (dim + 31) / 32 * 32; }
  Row* queries(const RowTile& tile) const {
    return reinterpret_cast<Row*>(scratch_.q[tile.index]);
  }
  float* scores_of(const RowTile& tile) const { return scratch_.scores[tile.index]; }
  // The last 16 dimensions of a group's K, where they do not fill a step.
  std::byte* key_end(int group) const { return scratch_.k_ends + group * kTileBytes; }
  // Where a step of a group's K lies.
  CHAIRLIFT_INLINE const std::byte* key_step(const ChunkGroups& groups, int group, int step,
                                             int dim) const {
    return step * 32 + 32 <= dim ? groups.k[group] + step * kTileBytes : key_end(group);
  }
  static CHAIRLIFT_INLINE void fetch_keys(const ChunkGroups& groups, int group, int dim) {
    if (group < groups.count) fetch_for_tiles(groups.k[group], dim * 32);
  }

  // The first kHeld steps of q stay in tiles 2 to 5.
  template <int kHeld, class AtGroup>
  CHAIRLIFT_INLINE void score_rows(const RowTile& tile, int dim, const ChunkGroups& groups,
                                   const AtGroup& at_group) const {
    const Row* q = queries(tile);
    const int row_bytes = padded(dim) * 2;
    _tile_loadd(2, q, row_bytes);
    if constexpr (kHeld > 1) _tile_loadd(3, q + 32, row_bytes);
    if constexpr (kHeld > 2) _tile_loadd(4, q + 64, row_bytes);
    if constexpr (kHeld > 3) _tile_loadd(5, q + 96, row_bytes);
    float* out = scores_of(tile) + lead_ * kScoreStride;
    fetch_keys(groups, 0, dim);
    for (int group = 0; group < groups.count; group++, out += kScoreStride) {
      at_group(group);
      fetch_keys(groups, group + 1, dim);
      _tile_zero(0);
      _tile_loadd(6, key_step(groups, group, 0, dim), 64);
      _tile_dpbf16ps(0, 2, 6);
      if constexpr (kHeld > 1) {
        _tile_loadd(7, key_step(groups, group, 1, dim), 64);
        _tile_dpbf16ps(0, 3, 7);
      }
      if constexpr (kHeld > 2) {
        _tile_loadd(6, key_step(groups, group, 2, dim), 64);
        _tile_dpbf16ps(0, 4, 6);
      }
      if constexpr (kHeld > 3) {
        _tile_loadd(7, key_step(groups, group, 3, dim), 64);
        _tile_dpbf16ps(0, 5, 7);
        for (int step = 4; step * 32 < dim; step++) {
          _tile_loadd(1, q + step * 32, row_bytes);
          _tile_loadd(6, key_step(groups, group, step, dim), 64);
          _tile_dpbf16ps(0, 1, 6);
        }
      }
      _tile_stored(0, out, 64);
    }
  }

  // Two tiles of rows; all steps of q stay in tiles 2 to 5.
  template <int kSteps, class AtGroup>
  CHAIRLIFT_INLINE void score_both(const RowTile* tiles, int dim, const ChunkGroups& groups,
                                   const AtGroup& at_group) const {
    const Row *upper = queries(tiles[0]), *lower = queries(tiles[1]);
    const int row_bytes = kSteps * 64;
    _tile_loadd(2, upper, row_bytes);
    _tile_loadd(3, lower, row_bytes);
    if constexpr (kSteps > 1) _tile_loadd(4, upper + 32, row_bytes);
    if constexpr (kSteps > 1) _tile_loadd(5, lower + 32, row_bytes);
    float* upper_out = scores_of(tiles[0]) + lead_ * kScoreStride;
    float* lower_out = scores_of(tiles[1]) + lead_ * kScoreStride;
    fetch_keys(groups, 0, dim);
    for (int group = 0; group < groups.count; group++) {
      at_group(group);
      fetch_keys(groups, group + 1, dim);
      _tile_zero(0);
      _tile_zero(1);
      _tile_loadd(6, key_step(groups, group, 0, dim), 64);
      _tile_dpbf16ps(0, 2, 6);
      _tile_dpbf16ps(1, 3, 6);
      if constexpr (kSteps > 1) {
        _tile_loadd(7, key_step(groups, group, 1, dim), 64);
        _tile_dpbf16ps(0, 4, 7);
        _tile_dpbf16ps(1, 5, 7);
      }
      _tile_stored(0, upper_out, 64);
      _tile_stored(1, lower_out, 64);
      upper_out += kScoreStride;
      lower_out += kScoreStride;
    }
  }

  // Two tiles of rows and two groups at a time, for any number of steps.
  template <class AtGroup>
  void score_both_long(const RowTile* tiles, int dim, const ChunkGroups& groups,
                       const AtGroup& at_group) const {
    const Row *upper = queries(tiles[0]), *lower = queries(tiles[1]);
    const int row_bytes = padded(dim) * 2;
    float* upper_out = scores_of(tiles[0]) + lead_ * kScoreStride;
    float* lower_out = scores_of(tiles[1]) + lead_ * kScoreStride;
    fetch_keys(groups, 0, dim);
    fetch_keys(groups, 1, dim);
    for (int group = 0; group < groups.count; group += 2) {
      const bool second = group + 1 < groups.count;
      at_group(group);
      if (second) at_group(group + 1);
      fetch_keys(groups, group + 2, dim);
      fetch_keys(groups, group + 3, dim);
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int step = 0; step * 32 < dim; step++) {
        _tile_loadd(4, upper + step * 32, row_bytes);
        _tile_loadd(5, lower + step * 32, row_bytes);
        _tile_loadd(6, key_step(groups, group, step, dim), 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        if (!second) continue;
        _tile_loadd(7, key_step(groups, group + 1, step, dim), 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, upper_out + group * kScoreStride, 64);
      _tile_stored(1, lower_out + group * kScoreStride, 64);
      if (!second) continue;
      _tile_stored(2, upper_out + (group + 1) * kScoreStride, 64);
      _tile_stored(3, lower_out + (group + 1) * kScoreStride, 64);
    }
  }

  // Puts one tile of V of a pair together, 16 columns from one on: 16 rows of 64 bytes.
  CHAIRLIFT_INLINE void make_tile(const ChunkGroups& groups, int pair, int column,
                                  std::byte* out) const {
    for (int half = 0; half < 2; half++) {
      const int group = 2 * pair + half - lead_;
      if (group >= 0 && group < groups.count) {
        copy_lines(out + half * 512, groups.v[group] + column * 32, 512);
      } else {
        std::memset(out + half * 512, 0, 512);
      }
    }
  }
  template <int C>
  CHAIRLIFT_INLINE void make_tiles(const ChunkGroups& groups, int pair, int column,
                                   std::byte* out) const {
    for (int c = 0; c < C; c++) make_tile(groups, pair, column + 16 * c, out + c * kTileBytes);
  }

  // The tiles of a pair are put together between the products of the one before.
  template <int C>
  CHAIRLIFT_INLINE void value_columns(const RowTile& tile, int dim, const ChunkGroups& groups,
                                      int column) const {
    const int pairs = (groups.count + lead_ + 1) / 2, row_bytes = dim * 4;
    float* sums = scratch_.out[tile.index] + column;
    _tile_loadd(0, sums, row_bytes);
    if constexpr (C > 1) _tile_loadd(1, sums + 16, row_bytes);
    if constexpr (C > 2) _tile_loadd(2, sums + 32, row_bytes);
    if constexpr (C > 3) _tile_loadd(3, sums + 48, row_bytes);
    const float* weights = scores_of(tile);
    make_tiles<C>(groups, 0, column, scratch_.v_tiles);
    for (int pair = 0; pair < pairs; pair++, weights += 2 * kScoreStride) {
      const std::byte* v = scratch_.v_tiles + pair % 2 * 4 * kTileBytes;
      std::byte* next = scratch_.v_tiles + (pair + 1) % 2 * 4 * kTileBytes;
      const bool is_last = pair + 1 == pairs;
      const auto make_next = [&](int c) __attribute__((always_inline)) {
        settle_memory();
        if (!is_last) make_tile(groups, pair + 1, column + 16 * c, next + c * kTileBytes);
        settle_memory();
      };
      settle_memory();
      _tile_loadd(4, weights, 64);
      _tile_loadd(6, v, 64);
      make_next(0);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (C > 1) {
        _tile_loadd(7, v + kTileBytes, 64);
        make_next(1);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (C > 2) {
        _tile_loadd(6, v + 2 * kTileBytes, 64);
        make_next(2);
        _tile_dpbf16ps(2, 4, 6);
      }
      if constexpr (C > 3) {
        _tile_loadd(7, v + 3 * kTileBytes, 64);
        make_next(3);
        _tile_dpbf16ps(3, 4, 7);
      }
    }
    _tile_stored(0, sums, row_bytes);
    if constexpr (C > 1) _tile_stored(1, sums + 16, row_bytes);
    if constexpr (C > 2) _tile_stored(2, sums + 32, row_bytes);
    if constexpr (C > 3) _tile_stored(3, sums + 48, row_bytes);
  }

  // Two tiles of rows, one or two columns.
  template <int C>
  CHAIRLIFT_INLINE void both_columns(const RowTile* tiles, int dim, const ChunkGroups& groups,
                                     int column) const {
    const int pairs = (groups.count + lead_ + 1) / 2, row_bytes = dim * 4;
    float* upper = scratch_.out[tiles[0].index] + column;
    float* lower = scratch_.out[tiles[1].index] + column;
    _tile_loadd(0, upper, row_bytes);
    _tile_loadd(1, lower, row_bytes);
    if constexpr (C > 1) _tile_loadd(2, upper + 16, row_bytes);
    if constexpr (C > 1) _tile_loadd(3, lower + 16, row_bytes);
    const float *upper_rows = scores_of(tiles[0]), *lower_rows = scores_of(tiles[1]);
    make_tiles<C>(groups, 0, column, scratch_.v_tiles);
    for (int pair = 0; pair < pairs; pair++) {
      const std::byte* v = scratch_.v_tiles + pair % 2 * 4 * kTileBytes;
      std::byte* next = scratch_.v_tiles + (pair + 1) % 2 * 4 * kTileBytes;
      settle_memory();
      _tile_loadd(4, upper_rows, 64);
      _tile_loadd(5, lower_rows, 64);
      _tile_loadd(6, v, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (C > 1) {
        _tile_loadd(7, v + kTileBytes, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      settle_memory();
      if (pair + 1 < pairs) make_tiles<C>(groups, pair + 1, column, next);
      upper_rows += 2 * kScoreStride;
      lower_rows += 2 * kScoreStride;
    }
    _tile_stored(0, upper, row_bytes);
    _tile_stored(1, lower, row_bytes);
    if constexpr (C > 1) _tile_stored(2, upper + 16, row_bytes);
    if constexpr (C > 1) _tile_stored(3, lower + 16, row_bytes);
  }

  AttentionScratch& scratch_;
  TileShapes shapes_;
  int lead_ = 0;
};

}  // namespace chairlift::CHAIRLIFT_ISA
