// GEMM over weights kept as in a GGUF file, on AMX tiles. For gemm_file_isa.cpp.
//
// The vector units expand blocks to bfloat16 a little ahead of the tiles that multiply them, so
// that both work at once. The tile products are those of gemm_amx.h, in the same order.
#pragma once

#include "gemm_file_few.h"

namespace chairlift::CHAIRLIFT_ISA {

static_assert(kExpandedBlockBytes == kPanelStepBytes);

// Panels for more than 32 rows: each is used by several passes, during which the next one is
// expanded.
template <WeightFormat kFormat>
class PanelFeed {
 public:
  PanelFeed(const PackedMatrix& weights, std::byte* two_panels)
      : reader_(weights),
        current_(two_panels),
        next_(two_panels + weights.padded_in() * kExpandedBlockBytes / kFileBlock) {}

  void begin_panel(const PanelOrder& order, int num_passes) {
    order_ = order;
    interval_ = num_passes < kMaxInterval ? num_passes : kMaxInterval;
    if (opened_ != order.panel) open(order.panel);
    while (!reader_.at_end()) expand_one();
    std::byte* used = current_;
    current_ = next_;
    next_ = used;
    opened_ = nullptr;
    if (order.next != nullptr) open(order.next);
  }
  void begin_pass() { used_ = 0; }

  CHAIRLIFT_INLINE const std::byte* step() {
    if (used_ % interval_ == 0 && !reader_.at_end()) expand_one();
    return current_ + kExpandedBlockBytes * used_++;
  }

 private:
  // Over how many passes the next panel is spread at the most.
  static constexpr int kMaxInterval = 4;

  void open(const std::byte* panel) {
    opened_ = panel;
    num_expanded_ = 0;
    reader_.open(panel);
  }
  CHAIRLIFT_INLINE void expand_one() {
    alignas(64) std::byte rows[kExpandedBlockBytes];
    expand_groups(reader_.take(order_.ahead), reinterpret_cast<bf16*>(rows));
    pair_inputs(rows, next_ + kExpandedBlockBytes * num_expanded_++);
  }
  BlockReader<kFormat> reader_;
  std::byte* current_;
  std::byte* next_;
  PanelOrder order_;
  const std::byte* opened_ = nullptr;
  int64_t num_expanded_ = 0, used_ = 0;
  int interval_ = 1;
};

// Sums of 16 (kTall: 32) rows x one panel into block.sums [32][32], with weights from `feed`.
// Meanwhile the block before is finished, as in multiply_tiles().
template <bool kTall, class Feed, class Block>
static __attribute__((noinline)) void multiply_fed_tiles(const GemmCall& call, const Block& block,
                                                         Feed& feed, Block& pending) {
  const int64_t stride_bytes = call.input_stride * 2;
  const std::byte* x = call.input + block.next_row * stride_bytes;
  const std::byte* x_low = x + kTileRows * stride_bytes;
  const int64_t num_steps = call.weights->padded_in() / Bf16Tiles::kInputs;
  int fetched_row = block.next_row;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTall) {
    _tile_zero(2);
    _tile_zero(3);
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < num_steps; step++) {
    const std::byte* weights = feed.step();
    asm volatile("" : : "r"(weights) : "memory");  // g++ 12 does not see that tiles read it
    _tile_loadd(4, x, stride_bytes);
    _tile_loadd(6, weights, kPanelRowBytes);
    _tile_loadd(7, weights + 64, kPanelRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTall) {
      _tile_loadd(5, x_low, stride_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      x_low += 64;
    }
    x += 64;
    for (int i = 0; i < 2; i++) {
      pending.finish_one(call);
      block.fetch_output(call, fetched_row++);
    }
  }
  float* sums = block.sums;
  _tile_stored(0, sums, 128);
  _tile_stored(1, sums + kLanes, 128);
  if constexpr (kTall) {
    _tile_stored(2, sums + kTileRows * kPanelFeatures, 128);
    _tile_stored(3, sums + kTileRows * kPanelFeatures + kLanes, 128);
  }
  asm volatile("" : : "r"(sums) : "memory");  // g++ 12 does not see that they are written
  pending.finish_all(call);
}

template <WeightFormat kFormat, Epilogue kEpilogue>
class ManyRowsGemm {
 public:
  explicit ManyRowsGemm(const GemmCall& call)
      : call_(call),
        feed_(*call.weights, call.scratch + gemm_row_scratch_bytes(call.weights->padded_in())) {}

  void run() {
    const TileRegisters registers;
    for_each_block<kTallRows>(call_, kRowsPerBlock,
                              [this](const GemmBlock& block) { multiply_panel(block); });
    pending_.finish_all(call_);
  }

 private:
  static constexpr int kRowsPerBlock = 256;
  static constexpr int kTallRows = 2 * kTileRows;

  using Block = PendingBlock<kEpilogue, bf16>;

  void multiply_panel(const GemmBlock& block) {
    feed_.begin_panel(PanelOrder(*call_.weights, block),
                      (block.end_row - block.first_row + kTallRows - 1) / kTallRows);
    for (int row = block.first_row; row < block.end_row; row += kTallRows) {
      feed_.begin_pass();
      const int end = row + kTallRows < block.end_row ? row + kTallRows : block.end_row;
      multiply(block.panel, row, end);
    }
  }

  void multiply(int panel, int row, int end) {
    const Block block = {sums_[turn_], row, end, panel};
    turn_ ^= 1;
    end - row > kTileRows ? multiply_fed_tiles<true>(call_, block, feed_, pending_)
                          : multiply_fed_tiles<false>(call_, block, feed_, pending_);
    pending_ = block;
  }

  const GemmCall& call_;
  PanelFeed<kFormat> feed_;
  Block pending_;
  int turn_ = 0;
  alignas(64) float sums_[2][kTallRows * kPanelFeatures];
};

template <WeightFormat kFormat, Epilogue kEpilogue>
static void multiply_file_blocks(const GemmCall& call) {
  if (call.num_rows == 1) return FewRowsGemm<kFormat, kEpilogue, OneRow>(call).run();
  if (call.num_rows <= kTileRows) {
    return FewRowsGemm<kFormat, kEpilogue, SomeRows<false>>(call).run();
  }
  if (call.num_rows <= 2 * kTileRows) {
    return FewRowsGemm<kFormat, kEpilogue, SomeRows<true>>(call).run();
  }
  ManyRowsGemm<kFormat, kEpilogue>(call).run();
}

template <WeightFormat kFormat>
static void gemm_on_file_blocks(const GemmCall& call) {
  switch (call.epilogue) {
    case Epilogue::store:
      return multiply_file_blocks<kFormat, Epilogue::store>(call);
    case Epilogue::add:
      return multiply_file_blocks<kFormat, Epilogue::add>(call);
    case Epilogue::silu_mul:
      return multiply_file_blocks<kFormat, Epilogue::silu_mul>(call);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
