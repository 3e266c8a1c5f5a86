// bfloat16 GEMM on AMX tiles: 32 rows x 32 features at once, each tile 16 x 16 over all of K.
// For gemm_isa.cpp.
//
// A tile product computes each of its rows from that row's inputs alone, in the order of K, so
// rows that pad a tile (whatever memory holds there) do not touch the others, and one row alone
// gets the same bits as among 32.
#pragma once

#include "gemm_blocks.h"
#include "gemm_epilogue.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kTileRows = 16;
constexpr int kTileInputs = 32;  // bfloat16 of K per tile
constexpr int64_t kPanelStepBytes = 2048;  // one tile step of a panel: two B tiles
constexpr int64_t kPanelRowBytes = 128;    // between rows of a B tile

// All eight tiles 16 rows of 64 bytes; while this lives on a thread.
class TileRegisters {
 public:
  TileRegisters() {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; tile++) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = kTileRows;
    }
    // g++ 12's intrinsic does not tell the compiler that it reads the struct.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// Fetches `lines` cache lines from `at` on.
static CHAIRLIFT_INLINE void prefetch_lines(const std::byte* at, int lines) {
#pragma GCC unroll 32
  for (int i = 0; i < lines; i++) __builtin_prefetch(at + 64 * i, 0, 2);
}

// Sums of 16 (kTall: 32) rows x one panel into block.sums [32][32]. Each step fetches kAhead lines,
// finishes two rows of the block before, and asks for the memory where two rows of this block will
// go, so that neither memory nor the vector units idle while the tiles work.
template <bool kTall, int kAhead, class Block>
static CHAIRLIFT_INLINE void multiply_tiles(const GemmCall& call, const Block& block,
                                            const std::byte* ahead, Block& pending) {
  const int64_t stride_bytes = call.input_stride * 2;
  const std::byte* x = call.input + block.next_row * stride_bytes;
  const std::byte* x_low = x + kTileRows * stride_bytes;
  const std::byte* weights = call.weights->panel(block.panel);
  const int64_t num_steps = call.weights->padded_in() / kTileInputs;
  int fetched_row = block.next_row;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTall) {
    _tile_zero(2);
    _tile_zero(3);
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < num_steps; step++) {
    prefetch_lines(ahead, kAhead);
    ahead += 64 * kAhead;
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
    weights += kPanelStepBytes;
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

// Multiplies block after block; the sums of each are finished during the next one.
template <Epilogue kEpilogue>
class TileGemm {
 public:
  explicit TileGemm(const GemmCall& call) : call_(call) {}

  void run() {
    for_each_block<kTallRows>(call_, kRowsPerBlock,
                              [this](const GemmBlock& block) { multiply_panel(block); });
    pending_.finish_all(call_);
  }

 private:
  // Rows whose activations stay in the L2 cache while panels stream past.
  static constexpr int kRowsPerBlock = 256;
  static constexpr int kTallRows = 2 * kTileRows;

  using Block = PendingBlock<kEpilogue, bf16>;

  // Passes over the panel fetch the next one meanwhile: one does it alone, or the first two half
  // each.
  void multiply_panel(const GemmBlock& block) {
    const int64_t half_panel = static_cast<int64_t>(call_.weights->panel_bytes()) / 2;
    for (int row = block.first_row; row < block.end_row; row += kTallRows) {
      const int end = row + kTallRows < block.end_row ? row + kTallRows : block.end_row;
      const bool tall = end - row > kTileRows;
      if (block.end_row - block.first_row <= kTallRows) {
        tall ? multiply<true, 32>(block.panel, row, end, block.ahead)
             : multiply<false, 32>(block.panel, row, end, block.ahead);
      } else if (row < block.first_row + 2 * kTallRows) {
        const std::byte* ahead = row == block.first_row ? block.ahead : block.ahead + half_panel;
        tall ? multiply<true, 16>(block.panel, row, end, ahead)
             : multiply<false, 16>(block.panel, row, end, ahead);
      } else {
        tall ? multiply<true, 0>(block.panel, row, end, nullptr)
             : multiply<false, 0>(block.panel, row, end, nullptr);
      }
    }
  }

  template <bool kTall, int kAhead>
  __attribute__((noinline)) void multiply(int panel, int row, int end, const std::byte* ahead) {
    const Block block = {sums_[turn_], row, end, panel};
    turn_ ^= 1;
    multiply_tiles<kTall, kAhead>(call_, block, ahead, pending_);
    pending_ = block;
  }

  const GemmCall& call_;
  Block pending_;
  int turn_ = 0;
  alignas(64) float sums_[2][kTallRows * kPanelFeatures];
};

static void gemm_on_tiles(const GemmCall& call) {
  const TileRegisters registers;
  switch (call.epilogue) {
    case Epilogue::store:
      return TileGemm<Epilogue::store>(call).run();
    case Epilogue::add:
      return TileGemm<Epilogue::add>(call).run();
    case Epilogue::silu_mul:
      return TileGemm<Epilogue::silu_mul>(call).run();
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
