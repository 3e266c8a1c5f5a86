// GEMM over weights kept as in a GGUF file, on AMX tiles. For gemm_file_isa.cpp.
//
// A block is expanded to [32 features][32 inputs], which is a product's left side: so the rows are
// its right side, and the sums come out transposed. Each product adds up as in gemm_amx.h, to the
// same bits. Between the tile instructions of one block the vector units expand a later one: in a
// burst, expanding would fill the reorder buffer and leave the tiles idle.
#pragma once

#include "file_block_feeds.h"
#include "gemm_amx.h"

namespace chairlift::CHAIRLIFT_ISA {

// How rows become the right side of products, [16 pairs of inputs][rows][2] for each step, and
// sums, [32 features][rows], become rows again.
struct OneRow {
  static constexpr bool kTall = false;
  static constexpr int64_t kPairBytes = 4, kStepBytes = 64;

  static CHAIRLIFT_INLINE void store_sums(float* sums) {
    _tile_stored(0, sums, kPairBytes);
    _tile_stored(1, sums + kLanes, kPairBytes);
    asm volatile("" : : "r"(sums) : "memory");  // g++ 12 does not see that they are written
  }
};

// 16 rows, or 32.
template <bool kIsTall>
struct SomeRows {
  static constexpr bool kTall = kIsTall;
  static constexpr int64_t kPairBytes = 64, kTileBytes = 1024;
  static constexpr int64_t kStepBytes = kTall ? 2 * kTileBytes : kTileBytes;

  // Writes kStepBytes for each step.
  static void pack(const GemmCall& call, int first_row, std::byte* to) {
    const int64_t stride_bytes = call.input_stride * 2;
    const std::byte* rows = call.input + first_row * stride_bytes;
    for (int64_t at = 0; at < call.weights->padded_in() * 2; at += 64) {
      transpose_words(rows + at, stride_bytes, to, kPairBytes);
      if constexpr (kTall) {
        transpose_words(rows + kTileRows * stride_bytes + at, stride_bytes, to + kTileBytes,
                        kPairBytes);
      }
      to += kStepBytes;
    }
  }
  static CHAIRLIFT_INLINE void store_sums(float* sums) {
    alignas(64) std::byte tiles[4 * kTileBytes];
    _tile_stored(0, tiles, kPairBytes);
    _tile_stored(1, tiles + kTileBytes, kPairBytes);
    if constexpr (kTall) {
      _tile_stored(2, tiles + 2 * kTileBytes, kPairBytes);
      _tile_stored(3, tiles + 3 * kTileBytes, kPairBytes);
    }
    asm volatile("" : : "r"(tiles) : "memory");  // g++ 12 does not see that they are written
    std::byte* rows = reinterpret_cast<std::byte*>(sums);
    for (int tile = 0; tile < (kTall ? 4 : 2); tile++) {
      transpose_words(tiles + tile * kTileBytes, kPairBytes,
                      rows + tile / 2 * kTileRows * kPanelRowBytes + tile % 2 * 64,
                      kPanelRowBytes);
    }
  }
};

// What is done between the tile instructions of a step, in kFeatureGroups slots: expanding `block`
// to `to`, and bringing to the L1 cache what tiles will be loaded from in the next step.
template <class Rows, class Feed, class Block>
struct Between {
  const std::byte* x;
  const std::byte* weights;
  const Block& block;
  bf16* to;

  template <int kSlot>
  CHAIRLIFT_INLINE void slot() const {
    if constexpr (Rows::kStepBytes > 64) fetch<kSlot, Rows::kStepBytes>(x);
    if constexpr (Feed::kFromL2) fetch<kSlot, kExpandedBlockBytes>(weights);
    block.template expand<kSlot>(to + kSlot * 4 * kFileBlock);
    asm volatile("" : : : "memory");  // keeps instructions that touch memory on their side of it
  }

 private:
  template <int kSlot, int64_t kBytes>
  static CHAIRLIFT_INLINE void fetch(const std::byte* at) {
    constexpr int kLines = kBytes / 64 / kFeatureGroups;
#pragma GCC unroll 4
    for (int i = kLines * kSlot; i < kLines * (kSlot + 1); i++) {
      __builtin_prefetch(at + kBytes + 64 * i, 0, 3);
    }
  }
};

// Rows lie in tiles 4 and 5, weights in 6 and 7, the sums in 0 to 3.
template <class Rows, class Feed, class Block>
static CHAIRLIFT_INLINE void multiply_step(const std::byte* x, const std::byte* weights,
                                           const Block& block, bf16* to) {
  const Between<Rows, Feed, Block> between = {x, weights, block, to};
  between.template slot<0>();
  _tile_loadd(4, x, Rows::kPairBytes);
  between.template slot<1>();
  _tile_loadd(6, weights, 64);
  between.template slot<2>();
  _tile_dpbf16ps(0, 6, 4);
  between.template slot<3>();
  _tile_loadd(7, weights + 1024, 64);
  between.template slot<4>();
  _tile_dpbf16ps(1, 7, 4);
  between.template slot<5>();
  if constexpr (Rows::kTall) _tile_loadd(5, x + 1024, Rows::kPairBytes);
  between.template slot<6>();
  if constexpr (Rows::kTall) _tile_dpbf16ps(2, 6, 5);
  between.template slot<7>();
  if constexpr (Rows::kTall) _tile_dpbf16ps(3, 7, 5);
}

// Sums of a block's rows, `x`, times one panel into `sums` [32][32], in so many steps. Meanwhile
// the block before is finished, as in multiply_tiles().
template <class Rows, class Feed, class Block>
static __attribute__((noinline)) void multiply_fed_tiles(const std::byte* x, int64_t num_steps,
                                                         float* sums, const Block& block,
                                                         Feed& feed, Block pending) {
  typename Block::OutputFetch out(block);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Rows::kTall) {
    _tile_zero(2);
    _tile_zero(3);
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < num_steps; step++) {
    const std::byte* weights = feed.next();
    feed.take([&](const auto& expanded, bf16* to) {
      multiply_step<Rows, Feed>(x, weights, expanded, to);
    });
    x += Rows::kStepBytes;
    pending.template finish<Bf16Tiles::kFinished>();
    out.template fetch<Bf16Tiles::kFinished>();
  }
  Rows::store_sums(sums);
  pending.finish_all();
}

template <WeightFormat kFormat, Epilogue kEpilogue>
class FileTileGemm {
 public:
  explicit FileTileGemm(const GemmCall& call)
      : call_(call),
        expanded_(call.scratch + gemm_row_scratch_bytes(call.weights->padded_in())) {}

  void run() {
    const TileRegisters registers(call_.num_rows == 1 ? OneRow::kPairBytes : 64);
    if (call_.num_rows == 1) {
      multiply_once<OneRow>(call_.input);
    } else if (call_.num_rows <= kTileRows) {
      SomeRows<false>::pack(call_, 0, call_.scratch);
      multiply_once<SomeRows<false>>(call_.scratch);
    } else if (call_.num_rows <= kTallRows) {
      SomeRows<true>::pack(call_, 0, call_.scratch);
      multiply_once<SomeRows<true>>(call_.scratch);
    } else {
      multiply_many();
    }
    pending_.finish_all();
  }

 private:
  static constexpr int kTallRows = 2 * kTileRows;

  using Block = PendingBlock<kEpilogue, bf16>;

  template <class Rows>
  void multiply_once(const std::byte* x) {
    RingFeed<kFormat> feed(*call_.weights, expanded_);
    for_each_block<kTallRows>(call_, kTallRows, [&](const GemmBlock& block) {
      feed.begin_panel(PanelOrder(*call_.weights, block));
      multiply<Rows>(x, block, block.first_row, feed);
    });
  }

  void multiply_many() {
    PanelFeed<kFormat> feed(*call_.weights, expanded_);
    int packed_row = -1;
    for_each_block<kTallRows>(call_, rows_per_block(), [&](const GemmBlock& block) {
      if (block.first_row != packed_row) pack_rows(block);
      packed_row = block.first_row;
      feed.begin_panel(PanelOrder(*call_.weights, block),
                       (block.end_row - block.first_row + kTallRows - 1) / kTallRows);
      for (int row = block.first_row; row < block.end_row; row += kTallRows) {
        feed.begin_pass();
        const std::byte* x = packed(row - block.first_row);
        block.end_row - row > kTileRows ? multiply<SomeRows<true>>(x, block, row, feed)
                                        : multiply<SomeRows<false>>(x, block, row, feed);
      }
    });
  }

  // Packed, rows must fit the scratch, and should fit the L2 cache while panels stream past.
  int rows_per_block() const {
    constexpr int64_t kBytes = 800 << 10, kMostRows = 256;
    static_assert(kBytes <= static_cast<int64_t>(kGemmScratchBytes));
    const int64_t fitting = kBytes / (call_.weights->padded_in() * 2) / kTallRows * kTallRows;
    const int64_t rows = fitting < kMostRows ? fitting : kMostRows;
    return rows < kTallRows ? kTallRows : static_cast<int>(rows);
  }
  std::byte* packed(int row) const {
    return call_.scratch + row * call_.weights->padded_in() * 2;
  }
  void pack_rows(const GemmBlock& block) {
    for (int row = block.first_row; row < block.end_row; row += kTallRows) {
      std::byte* to = packed(row - block.first_row);
      block.end_row - row > kTileRows ? SomeRows<true>::pack(call_, row, to)
                                      : SomeRows<false>::pack(call_, row, to);
    }
  }

  template <class Rows, class Feed>
  void multiply(const std::byte* x, const GemmBlock& at, int row, Feed& feed) {
    const int end = row + kTallRows < at.end_row ? row + kTallRows : at.end_row;
    float* sums = sums_[turn_];
    turn_ ^= 1;
    const Block block(call_, sums, row, end, at.panel);
    multiply_fed_tiles<Rows>(x, call_.weights->padded_in() / Bf16Tiles::kInputs, sums, block, feed,
                             pending_);
    pending_ = block;
  }

  const GemmCall& call_;
  std::byte* const expanded_;
  Block pending_;
  int turn_ = 0;
  alignas(64) float sums_[2][kTallRows * kPanelFeatures];
};

template <WeightFormat kFormat>
static void gemm_on_file_blocks(const GemmCall& call) {
  switch (call.epilogue) {
    case Epilogue::store:
      return FileTileGemm<kFormat, Epilogue::store>(call).run();
    case Epilogue::add:
      return FileTileGemm<kFormat, Epilogue::add>(call).run();
    case Epilogue::silu_mul:
      return FileTileGemm<kFormat, Epilogue::silu_mul>(call).run();
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
