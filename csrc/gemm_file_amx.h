// GEMM over weights kept as in a GGUF file, on AMX tiles. For gemm_file_isa.cpp.
//
// The vector units expand blocks to bfloat16 a little ahead of the tiles that multiply them, so
// that both work at once. The tile products are those of gemm_amx.h, in the same order.
#pragma once

#include "file_blocks_expand.h"
#include "gemm_amx.h"

namespace chairlift::CHAIRLIFT_ISA {

static_assert(kExpandedBlockBytes == kPanelStepBytes);

template <int kLines>
static CHAIRLIFT_INLINE void prefetch_lines(const std::byte* at) {
#pragma GCC unroll 32
  for (int i = 0; i < kLines; i++) __builtin_prefetch(at + 64 * i, 0, 2);
}

// Panels of one matrix as a member works on them; `next`: the panel it will probably want after
// this one, or null; `ahead`: where it will read weights then, in this matrix or another.
struct PanelOrder {
  const std::byte* panel = nullptr;
  const std::byte* next = nullptr;
  const std::byte* ahead = nullptr;

  PanelOrder() = default;
  PanelOrder(const PackedMatrix& weights, const GemmBlock& block)
      : panel(weights.panel(block.panel)), ahead(block.ahead) {
    if (ahead >= weights.data && ahead < weights.data + weights.bytes()) next = ahead;
  }
};

// Expands the blocks of a panel from front to back, and fetches memory some way ahead of them.
template <WeightFormat kFormat>
class BlockReader {
 public:
  explicit BlockReader(const PackedMatrix& weights)
      : panel_bytes_(static_cast<int64_t>(weights.panel_bytes())),
        num_blocks_(weights.in_features / kFileBlock),
        fetch_distance_(panel_bytes_ < kFetchDistance ? panel_bytes_ : kFetchDistance) {}

  bool at_end() const { return num_left_ == 0; }
  void open(const std::byte* panel) {
    cursor_ = BlockCursor<kFormat>(panel);
    num_left_ = num_blocks_;
    fetched_ = panel + fetch_distance_;
    end_ = panel + panel_bytes_;
  }
  // `ahead`: where to go on fetching behind the panel's end.
  CHAIRLIFT_INLINE void expand(std::byte* to, const std::byte* ahead) {
    prefetch_lines<kBytes / 64>(fetched_ < end_ ? fetched_ : ahead + (fetched_ - end_));
    fetched_ += kBytes;
    cursor_.expand(to);
    num_left_--;
  }

 private:
  static constexpr FileLayout kLayout = file_layout(kFormat);
  // A block with its share of the header, rounded up: lines fetched twice do no harm.
  static constexpr int kBytes =
      (kLayout.group_bytes() / kLayout.group_blocks + 63) / 64 * 64;
  static constexpr int64_t kFetchDistance = 16384 / kBytes * kBytes;

  const int64_t panel_bytes_;
  const int num_blocks_;
  const int64_t fetch_distance_;
  BlockCursor<kFormat> cursor_;
  int num_left_ = 0;
  const std::byte* fetched_ = nullptr;
  const std::byte* end_ = nullptr;
};

// Blocks for up to 32 rows: each is used once, out of a small ring in the L1 cache.
template <WeightFormat kFormat>
class RingFeed {
 public:
  RingFeed(const PackedMatrix& weights, std::byte* ring)
      : reader_(weights),
        ring_(ring),
        lead_(weights.in_features / kFileBlock < kMaxLead ? weights.in_features / kFileBlock
                                                          : kMaxLead) {}

  void begin_panel(const PanelOrder& order) {
    order_ = order;
    if (opened_ == order.panel) return;  // its first blocks are in the ring already
    opened_ = order.panel;
    reader_.open(order.panel);
    used_ = num_expanded_ = 0;
    while (num_expanded_ < lead_) expand_one();
  }
  void begin_pass() {}

  CHAIRLIFT_INLINE const std::byte* step() {
    if (reader_.at_end() && order_.next != nullptr) {
      opened_ = order_.next;
      reader_.open(opened_);
      order_.next = nullptr;
    }
    if (!reader_.at_end()) expand_one();
    return at(used_++);
  }

 private:
  static constexpr int kMaxLead = 4, kBlocks = 8;
  static_assert(kBlocks * kExpandedBlockBytes <= kMinExpandedBytes);

  CHAIRLIFT_INLINE std::byte* at(int64_t block) const {
    return ring_ + block % kBlocks * kExpandedBlockBytes;
  }
  CHAIRLIFT_INLINE void expand_one() { reader_.expand(at(num_expanded_++), order_.ahead); }

  BlockReader<kFormat> reader_;
  std::byte* const ring_;
  const int lead_;
  PanelOrder order_;
  const std::byte* opened_ = nullptr;
  int64_t used_ = 0, num_expanded_ = 0;
};

// Panels for more rows: each is used by several passes, during which the next one is expanded.
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
    reader_.expand(next_ + kExpandedBlockBytes * num_expanded_++, order_.ahead);
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
class FileTileGemm {
 public:
  explicit FileTileGemm(const GemmCall& call)
      : call_(call),
        ring_(*call.weights, expanded()),
        panels_(*call.weights, expanded()) {}

  void run() {
    for_each_block<kTallRows>(call_, kRowsPerBlock,
                              [this](const GemmBlock& block) { multiply_panel(block); });
    pending_.finish_all(call_);
  }

 private:
  static constexpr int kRowsPerBlock = 256;
  static constexpr int kTallRows = 2 * kTileRows;

  using Block = PendingBlock<kEpilogue, bf16>;

  std::byte* expanded() const {
    return call_.scratch + gemm_row_scratch_bytes(call_.weights->padded_in());
  }

  void multiply_panel(const GemmBlock& block) {
    const PanelOrder order(*call_.weights, block);
    // All blocks of a call have about as many rows, so that one feed serves all but the last.
    if (call_.num_rows <= kTallRows) {
      ring_.begin_panel(order);
      multiply(block.panel, block.first_row, block.end_row, ring_);
      return;
    }
    panels_.begin_panel(order, (block.end_row - block.first_row + kTallRows - 1) / kTallRows);
    for (int row = block.first_row; row < block.end_row; row += kTallRows) {
      panels_.begin_pass();
      const int end = row + kTallRows < block.end_row ? row + kTallRows : block.end_row;
      multiply(block.panel, row, end, panels_);
    }
  }

  template <class Feed>
  void multiply(int panel, int row, int end, Feed& feed) {
    const Block block = {sums_[turn_], row, end, panel};
    turn_ ^= 1;
    end - row > kTileRows ? multiply_fed_tiles<true>(call_, block, feed, pending_)
                          : multiply_fed_tiles<false>(call_, block, feed, pending_);
    pending_ = block;
  }

  const GemmCall& call_;
  RingFeed<kFormat> ring_;
  PanelFeed<kFormat> panels_;
  Block pending_;
  int turn_ = 0;
  alignas(64) float sums_[2][kTallRows * kPanelFeatures];
};

template <WeightFormat kFormat>
static void gemm_on_file_blocks(const GemmCall& call) {
  const TileRegisters registers;
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
