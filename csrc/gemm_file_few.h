// GEMM of up to 32 rows over weights kept as in a GGUF file, on AMX tiles. For gemm_file_amx.h.
//
// A block is expanded to [32 features][32 inputs], which is a product's left side: so the rows are
// its right side, and the sums come out transposed. Each product adds up as in gemm_amx.h, to the
// same bits. Between the tile instructions of one block the vector units expand a later one: in a
// burst, expanding would fill the reorder buffer and leave the tiles idle.
#pragma once

#include "file_block_reader.h"
#include "gemm_amx.h"

namespace chairlift::CHAIRLIFT_ISA {

// Blocks, each used once, out of a small ring in the L1 cache.
template <WeightFormat kFormat>
class RingFeed {
 public:
  RingFeed(const PackedMatrix& weights, std::byte* ring) : reader_(weights), ring_(ring) {}

  void begin_panel(const PanelOrder& order) {
    order_ = order;
    if (opened_ == order.panel) return;  // its first blocks are in the ring already
    open(order.panel);
    used_ = num_taken_ = 0;
    const int lead = reader_.num_blocks() < kLead ? reader_.num_blocks() : kLead;
    while (num_taken_ < lead) {
      bf16* to = next_slot();
      expand_groups(reader_.take(order_.ahead), to);
    }
  }

  // Expanded weights of the panel's next block.
  CHAIRLIFT_INLINE const std::byte* next() { return slot(used_++); }
  // Calls body(block, to) with a block to expand meanwhile.
  template <class Body>
  CHAIRLIFT_INLINE void take(Body body) {
    if (reader_.at_end() && order_.next != nullptr) {
      open(order_.next);
      order_.next = nullptr;
    }
    if (reader_.at_end()) return body(NoBlock{}, nullptr);
    bf16* to = next_slot();
    body(reader_.take(order_.ahead), to);
  }

 private:
  static constexpr int kLead = 3, kSlots = 4;
  static_assert(kSlots * kExpandedBlockBytes <= kMinExpandedBytes);

  void open(const std::byte* panel) {
    opened_ = panel;
    reader_.open(panel);
  }
  CHAIRLIFT_INLINE std::byte* slot(int64_t block) const {
    return ring_ + block % kSlots * kExpandedBlockBytes;
  }
  CHAIRLIFT_INLINE bf16* next_slot() { return reinterpret_cast<bf16*>(slot(num_taken_++)); }

  BlockReader<kFormat> reader_;
  std::byte* const ring_;
  PanelOrder order_;
  const std::byte* opened_ = nullptr;
  int64_t used_ = 0, num_taken_ = 0;
};

// How rows become the right side of products, [16 pairs of inputs][rows][2] for each step, and
// sums, [32 features][rows], become rows again.
struct OneRow {
  static constexpr bool kTall = false;
  static constexpr int64_t kPairBytes = 4, kStepBytes = 64;

  static const std::byte* prepare(const GemmCall& call) { return call.input; }
  static CHAIRLIFT_INLINE void store_sums(float* sums) {
    _tile_stored(0, sums, kPairBytes);
    _tile_stored(1, sums + kLanes, kPairBytes);
    asm volatile("" : : "r"(sums) : "memory");  // g++ 12 does not see that they are written
  }
};

template <bool kIsTall>
struct SomeRows {
  static constexpr bool kTall = kIsTall;
  static constexpr int64_t kPairBytes = 64, kTileBytes = 1024;
  static constexpr int64_t kStepBytes = kTall ? 2 * kTileBytes : kTileBytes;

  // At the front of the scratch: 64 bytes a column at the most, of which it has more.
  static const std::byte* prepare(const GemmCall& call) {
    const int64_t stride_bytes = call.input_stride * 2;
    std::byte* to = call.scratch;
    for (int64_t at = 0; at < call.weights->padded_in() * 2; at += 64) {
      transpose_words(call.input + at, stride_bytes, to, kPairBytes);
      if constexpr (kTall) {
        transpose_words(call.input + kTileRows * stride_bytes + at, stride_bytes, to + kTileBytes,
                        kPairBytes);
      }
      to += kStepBytes;
    }
    return call.scratch;
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

// Keeps instructions that touch memory on their side of it.
static CHAIRLIFT_INLINE void stay_here() { asm volatile("" : : : "memory"); }

// Tile instructions of one step with the groups of `block` expanded between them. Rows lie in tiles
// 4 and 5, weights in 6 and 7, the sums in 0 to 3.
template <class Rows, class Block>
static CHAIRLIFT_INLINE void multiply_and_expand(const std::byte* x, const std::byte* weights,
                                                 const Block& block, bf16* to) {
  constexpr int kGroupSize = 4 * kFileBlock;
  block.template expand<0>(to);
  stay_here();
  _tile_loadd(4, x, Rows::kPairBytes);
  block.template expand<1>(to + kGroupSize);
  stay_here();
  _tile_loadd(6, weights, 64);
  block.template expand<2>(to + 2 * kGroupSize);
  stay_here();
  _tile_dpbf16ps(0, 6, 4);
  block.template expand<3>(to + 3 * kGroupSize);
  stay_here();
  _tile_loadd(7, weights + 1024, 64);
  block.template expand<4>(to + 4 * kGroupSize);
  stay_here();
  _tile_dpbf16ps(1, 7, 4);
  block.template expand<5>(to + 5 * kGroupSize);
  stay_here();
  if constexpr (Rows::kTall) _tile_loadd(5, x + 1024, Rows::kPairBytes);
  block.template expand<6>(to + 6 * kGroupSize);
  stay_here();
  if constexpr (Rows::kTall) _tile_dpbf16ps(2, 6, 5);
  block.template expand<7>(to + 7 * kGroupSize);
  stay_here();
  if constexpr (Rows::kTall) _tile_dpbf16ps(3, 7, 5);
}

// Sums of all rows x one panel into block.sums [32][32]; `x` as Rows prepares it. Meanwhile the
// panel before is finished, as in multiply_tiles().
template <class Rows, class Feed, class Block>
static __attribute__((noinline)) void multiply_few_rows(const GemmCall& call, const std::byte* x,
                                                        const Block& block, Feed& feed,
                                                        Block& pending) {
  const int64_t num_steps = call.weights->padded_in() / Bf16Tiles::kInputs;
  int fetched_row = block.next_row;
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
      multiply_and_expand<Rows>(x, weights, expanded, to);
    });
    x += Rows::kStepBytes;
    for (int i = 0; i < 2; i++) {
      pending.finish_one(call);
      block.fetch_output(call, fetched_row++);
    }
  }
  Rows::store_sums(block.sums);
  pending.finish_all(call);
}

template <WeightFormat kFormat, Epilogue kEpilogue, class Rows>
class FewRowsGemm {
 public:
  explicit FewRowsGemm(const GemmCall& call) : call_(call) {}

  void run() {
    const TileRegisters registers(Rows::kPairBytes);
    const PackedMatrix& weights = *call_.weights;
    RingFeed<kFormat> feed(weights, call_.scratch + gemm_row_scratch_bytes(weights.padded_in()));
    const std::byte* x = Rows::prepare(call_);
    for_each_block<kMostRows>(call_, kMostRows, [&](const GemmBlock& at) {
      feed.begin_panel(PanelOrder(weights, at));
      const Block block = {sums_[turn_], at.first_row, at.end_row, at.panel};
      turn_ ^= 1;
      multiply_few_rows<Rows>(call_, x, block, feed, pending_);
      pending_ = block;
    });
    pending_.finish_all(call_);
  }

 private:
  static constexpr int kMostRows = 2 * kTileRows;

  using Block = PendingBlock<kEpilogue, bf16>;

  const GemmCall& call_;
  Block pending_;
  int turn_ = 0;
  alignas(64) float sums_[2][kMostRows * kPanelFeatures];
};

}  // namespace chairlift::CHAIRLIFT_ISA
