// The two products on AMX tiles: bfloat16 pairs, 16 x 16 outputs an instruction. Part of
// attention_isa.cpp, for the amx level only.
//
// TDPBF16PS sums the products of first elements and of second elements separately over its steps,
// adds the two, and adds that to the tile; every row is on its own, so a row's bits do not depend
// on how many rows the tile has.
#pragma once

#include "attention.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// Asks for a group's K, or part of its V, in the L1 cache: tile loads that miss it do not overlap.
static CHAIRLIFT_INLINE void fetch_for_tiles(const std::byte* at, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 3);
}

class AmxProducts {
 public:
  using Row = bf16;
  static constexpr bool kQuantised = false;
  static constexpr int kScoreStride = kTileRows * kGroupTokens;  // from group to group
  static constexpr int kGroupsAtOnce = 1;

  explicit AmxProducts(AttentionScratch& /*scratch*/) {}

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
    for (int i = 0; i < groups; i++) fetch_for_tiles(k[i], dim * 32);
  }

  // scores[g][r][:] = q[r] . k of group g. q: [rows, dim].
  void scores(const Row* q, int /*rows*/, int dim, const std::byte* const* k, int groups,
              float* out) {
    settle_memory();
    for (int group = 0; group < groups; group++) {
      const std::byte* step = k[group];
      _tile_zero(0);
      int i = 0;
      for (; i + 32 <= dim; i += 32, step += 1024) {
        _tile_loadd(4, q + i, dim * 2);
        _tile_loadd(5, step, 64);
        _tile_dpbf16ps(0, 4, 5);
      }
      if (i < dim) {
        _tile_loadd(6, q + i, dim * 2);
        _tile_loadd(7, step, 64);
        _tile_dpbf16ps(0, 6, 7);
      }
      _tile_stored(0, out + group * kScoreStride, 64);
    }
    settle_memory();
  }

  // out[r] += sum over groups and tokens of weights[g][r][token] v[g][token]. out: [rows, dim].
  void values(const Row* weights, int /*rows*/, int dim, const std::byte* const* v, int groups,
              float* out) {
    settle_memory();
    int column = 0;
    for (; column + 64 <= dim; column += 64) {
      value_columns<4>(weights, dim, v, groups, column, out);
    }
    if (dim - column == 48) value_columns<3>(weights, dim, v, groups, column, out);
    if (dim - column == 32) value_columns<2>(weights, dim, v, groups, column, out);
    if (dim - column == 16) value_columns<1>(weights, dim, v, groups, column, out);
    settle_memory();
  }

 private:
  // g++ 12's tile intrinsics do not say that they read memory: nothing may be moved across them.
  static CHAIRLIFT_INLINE void settle_memory() { asm volatile("" : : : "memory"); }

  // Tiles 0-3: sums. 4: 32 dimensions of q, 5: of K. 6: 16 of q or 16 weights, 7: of K or V.
  static void configure(int rows) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 32, 64};
      uint8_t rows[16] = {0, 0, 0, 0, 0, 16, 0, 8};
    } shapes;
    for (int tile : {0, 1, 2, 3, 4, 6}) shapes.rows[tile] = static_cast<uint8_t>(rows);
    asm volatile("" : : "r"(&shapes) : "memory");  // see settle_memory
    _tile_loadconfig(&shapes);
  }

  template <int C>
  static CHAIRLIFT_INLINE void value_columns(const Row* weights, int dim, const std::byte* const* v,
                                             int groups, int column, float* out) {
    const int row_bytes = dim * 4;
    float* sums = out + column;
    _tile_loadd(0, sums, row_bytes);
    if constexpr (C > 1) _tile_loadd(1, sums + 16, row_bytes);
    if constexpr (C > 2) _tile_loadd(2, sums + 32, row_bytes);
    if constexpr (C > 3) _tile_loadd(3, sums + 48, row_bytes);
    fetch_for_tiles(v[0] + column * 32, 512 * C);
    for (int group = 0; group < groups; group++) {
      if (group + 1 < groups) fetch_for_tiles(v[group + 1] + column * 32, 512 * C);
      const std::byte* pairs = v[group] + column * 32;
      _tile_loadd(6, weights + group * kScoreStride, 32);
      multiply_column<0>(pairs);
      if constexpr (C > 1) multiply_column<1>(pairs);
      if constexpr (C > 2) multiply_column<2>(pairs);
      if constexpr (C > 3) multiply_column<3>(pairs);
    }
    _tile_stored(0, sums, row_bytes);
    if constexpr (C > 1) _tile_stored(1, sums + 16, row_bytes);
    if constexpr (C > 2) _tile_stored(2, sums + 32, row_bytes);
    if constexpr (C > 3) _tile_stored(3, sums + 48, row_bytes);
  }

  template <int C>
  static CHAIRLIFT_INLINE void multiply_column(const std::byte* pairs) {
    _tile_loadd(7, pairs + 512 * C, 64);
    if constexpr (C == 0) _tile_dpbf16ps(0, 6, 7);
    if constexpr (C == 1) _tile_dpbf16ps(1, 6, 7);
    if constexpr (C == 2) _tile_dpbf16ps(2, 6, 7);
    if constexpr (C == 3) _tile_dpbf16ps(3, 6, 7);
  }

  int configured_rows_ = 0;
};

}  // namespace chairlift::CHAIRLIFT_ISA
