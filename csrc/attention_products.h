// The two matrix products of attention, q K^T and p V, for up to 16 rows. Part of
// attention_isa.cpp.
//
// A path says how elements are stored and multiplied. In K and in V alike a step is 64 bytes for 16
// columns (tokens in K, dimensions in V): one float each, or a pair of bfloat16 that is summed
// over; the steps of a column follow each other. So both products are one micro kernel, and no sum
// runs across lanes.
#pragma once

#include "attention.h"
#include "attention_context.h"
#include "attention_row_tile.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

struct Float32Path {
  using Row = float;                // element of q and of the softmax weights
  using Sum = F32x16;
  static constexpr int kDepth = 1;  // of the summed dimension, per step
  struct Step {
    F32x16 columns;
  };
  static CHAIRLIFT_INLINE Step load_step(const std::byte* p) {
    return {load(reinterpret_cast<const float*>(p))};
  }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, const Step& step, const float* row) {
    return fmadd(broadcast(*row), step.columns, sum);
  }
};

// bfloat16 in memory, widened in registers; q and weights stay float32.
struct WidenedPath {
  using Row = float;
  using Sum = F32x16;
  static constexpr int kDepth = 2;
  struct Step {
    F32x16 first, second;
  };
  static CHAIRLIFT_INLINE Step load_step(const std::byte* p) {
    const U32x16 pairs = load_words(p);
    return {first_of_pairs(pairs), second_of_pairs(pairs)};
  }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, const Step& step, const float* row) {
    sum = fmadd(broadcast(row[0]), step.first, sum);
    return fmadd(broadcast(row[1]), step.second, sum);
  }
};

// bfloat16 on both sides, with the machine's paired dot product.
struct DotPath {
  using Row = bf16;
  using Sum = F32x16;
  static constexpr int kDepth = 2;
  struct Step {
    U32x16 pairs;
  };
  static CHAIRLIFT_INLINE Step load_step(const std::byte* p) { return {load_words(p)}; }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, const Step& step, const bf16* row) {
    uint32_t pair;
    std::memcpy(&pair, row, 4);
    return dot_pairs(sum, step.pairs, broadcast_word(pair));
  }
};

// Accumulators of the micro kernel: what fits the registers beside the operands.
#if defined(__AVX512F__)
constexpr int kBlockRows = 4, kBlockColumns = 4;
#elif defined(__AVX2__)
constexpr int kBlockRows = 4, kBlockColumns = 1;
#else
constexpr int kBlockRows = 2, kBlockColumns = 1;
#endif

// sums[r][c] += rows[r] . columns[c] over `steps` steps of 64 bytes; row r starts r * row_stride
// after rows.
template <class Path, int R, int C>
static CHAIRLIFT_INLINE void multiply(typename Path::Sum (&sums)[R][C],
                                      const typename Path::Row* rows, int row_stride,
                                      const std::byte* const (&columns)[C], int steps) {
#pragma GCC unroll 1
  for (int step = 0; step < steps; step++) {
    typename Path::Step loaded[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) loaded[c] = Path::load_step(columns[c] + 64 * step);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
      const typename Path::Row* element = rows + r * row_stride + step * Path::kDepth;
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) sums[r][c] = Path::accumulate(sums[r][c], loaded[c], element);
    }
  }
}

// Covers rows x columns with register blocks: body.operator()<R, C>(first row, first column).
template <int C, class Body>
static CHAIRLIFT_INLINE void for_rows(int rows, int column, Body&& body) {
  int row = 0;
  for (; row + kBlockRows <= rows; row += kBlockRows) {
    body.template operator()<kBlockRows, C>(row, column);
  }
  if constexpr (kBlockRows == 4) {
    if (rows - row == 3) return body.template operator()<3, C>(row, column);
    if (rows - row == 2) return body.template operator()<2, C>(row, column);
  }
  if (rows - row == 1) body.template operator()<1, C>(row, column);
}
template <class Body>
static CHAIRLIFT_INLINE void for_blocks(int rows, int columns, Body&& body) {
  int column = 0;
  for (; column + kBlockColumns <= columns; column += kBlockColumns) {
    for_rows<kBlockColumns>(rows, column, body);
  }
  for (; column < columns; column++) for_rows<1>(rows, column, body);
}

template <class Path>
class VectorProducts {
 public:
  using Row = typename Path::Row;
  static constexpr bool kQuantised = false;
  static constexpr bool kCoarseWeights = sizeof(Row) == 2;
  static constexpr int kWeightGroups = 1;  // whose weights are stored together

  explicit VectorProducts(AttentionScratch& scratch) : scratch_(scratch) {}
  void begin(int /*rows*/) {}
  void begin_chunk(const ChunkGroups& /*groups*/, int /*dim*/) {}
  void end() {}
  int lead() const { return 0; }

  Row* query_row(const RowTile& tile, int row, int dim) const {
    return reinterpret_cast<Row*>(scratch_.q[tile.index]) + row * dim;
  }

  // Scores of each tile: q[r] . k of each group.
  template <class AtGroup>
  void scores(const RowTile* tiles, int count, int dim, const ChunkGroups& groups,
              const AtGroup& at_group) const {
    for (int i = 0; i < count; i++) score_tile(tiles[i], dim, groups, at_group);
  }

  // Weights of a row and group, where the scores were.
  static CHAIRLIFT_INLINE void store_weights(float* scores, const F32x16 (&v)[kWeightGroups]) {
    store_from_f32(reinterpret_cast<Row*>(scores), v[0]);
  }

  // out[r] += sum over groups and tokens of weights[g][r][token] v[g][token], out: [rows, dim].
  void values(const RowTile* tiles, int count, int dim, const ChunkGroups& groups) const {
    for (int i = 0; i < count; i++) add_values(tiles[i], dim, groups);
  }

 private:
  template <class AtGroup>
  void score_tile(const RowTile& tile, int dim, const ChunkGroups& groups,
                  const AtGroup& at_group) const {
    const Row* q = query_row(tile, 0, dim);
    float* out = scratch_.scores[tile.index];
    for_blocks(tile.count, tile.groups, [&]<int R, int C>(int row, int group)
                                            __attribute__((always_inline)) {
      F32x16 sums[R][C];
      const std::byte* columns[C];
      for (int c = 0; c < C; c++) {
        if (row == 0) at_group(group + c);
        columns[c] = groups.k[group + c];
        for (int r = 0; r < R; r++) sums[r][c] = zero();
      }
      multiply<Path>(sums, q + row * dim, dim, columns, dim / Path::kDepth);
      for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
          store(out + (group + c) * kScoreStride + (row + r) * kGroupTokens, sums[r][c]);
        }
      }
    });
  }

  void add_values(const RowTile& tile, int dim, const ChunkGroups& groups) const {
    constexpr int kSteps = kGroupTokens / Path::kDepth;
    const float* weights = scratch_.scores[tile.index];
    float* out = scratch_.out[tile.index];
    for_blocks(tile.count, dim / kLanes, [&]<int R, int C>(int row, int column)
                                             __attribute__((always_inline)) {
      F32x16 sums[R][C];
      float* block = out + row * dim + column * kLanes;
      for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) sums[r][c] = load(block + r * dim + c * kLanes);
      }
      for (int group = 0; group < tile.groups; group++) {
        const std::byte* columns[C];
        for (int c = 0; c < C; c++) columns[c] = groups.v[group] + 64 * kSteps * (column + c);
        const float* rows = weights + group * kScoreStride + row * kGroupTokens;
        multiply<Path>(sums, reinterpret_cast<const Row*>(rows),
                       kGroupTokens * static_cast<int>(sizeof(float) / sizeof(Row)), columns,
                       kSteps);
      }
      for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) store(block + r * dim + c * kLanes, sums[r][c]);
      }
    });
  }

  AttentionScratch& scratch_;
};

}  // namespace chairlift::CHAIRLIFT_ISA
