// bfloat16 GEMM on AMX tiles: 32 rows x 32 features at once, each tile 16 x 16 over all of K.
// For gemm_isa.cpp.
//
// A tile product computes each of its rows from that row's inputs alone, in the order of K, so
// rows that pad a tile (whatever memory holds there) do not touch the others, and one row alone
// gets the same bits as among 32.
#pragma once

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

// Sums of 16 (kTall: 32) rows x one panel into block [32][32]; each step fetches kAhead lines.
template <bool kTall, int kAhead>
static CHAIRLIFT_INLINE void multiply_tiles(const bf16* x, int64_t stride,
                                            const std::byte* weights, int64_t num_steps,
                                            const std::byte* ahead, float* block) {
  const int64_t stride_bytes = stride * 2;
  const bf16* x_low = x + kTileRows * stride;
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
      x_low += kTileInputs;
    }
    x += kTileInputs;
    weights += kPanelStepBytes;
  }
  _tile_stored(0, block, 128);
  _tile_stored(1, block + kLanes, 128);
  if constexpr (kTall) {
    _tile_stored(2, block + kTileRows * kPanelFeatures, 128);
    _tile_stored(3, block + kTileRows * kPanelFeatures + kLanes, 128);
  }
}

static inline void multiply_panel(const GemmCall& call, int panel, int first_row, int last_row,
                                  const std::byte* next, float* block) {
  const PackedMatrix& w = *call.weights;
  const int64_t num_steps = w.padded_in() / kTileInputs;
  const bf16* x = reinterpret_cast<const bf16*>(call.input);
  const bool one_pass = last_row - first_row <= 2 * kTileRows;
  for (int row = first_row; row < last_row; row += 2 * kTileRows) {
    const int rows = last_row - row < 2 * kTileRows ? last_row - row : 2 * kTileRows;
    const bf16* from = x + row * call.input_stride;
    if (rows <= kTileRows) {
      if (one_pass) {
        multiply_tiles<false, 32>(from, call.input_stride, w.panel(panel), num_steps, next, block);
      } else {
        multiply_tiles<false, 0>(from, call.input_stride, w.panel(panel), num_steps, next, block);
      }
    } else if (one_pass) {
      multiply_tiles<true, 32>(from, call.input_stride, w.panel(panel), num_steps, next, block);
    } else if (row - first_row < 4 * kTileRows) {
      // The first two passes over a panel fetch the next one, half each.
      const int64_t half = (row - first_row) / (2 * kTileRows) * num_steps * 1024;
      multiply_tiles<true, 16>(from, call.input_stride, w.panel(panel), num_steps, next + half,
                               block);
    } else {
      multiply_tiles<true, 0>(from, call.input_stride, w.panel(panel), num_steps, next, block);
    }
    finish_block<bf16>(call, block, row, rows, panel);
  }
}

static void gemm_on_tiles(const GemmCall& call) {
  // Rows whose activations stay in the L2 cache while panels stream past.
  constexpr int kRowsPerBlock = 256;
  const TileRegisters registers;
  alignas(64) float block[2 * kTileRows * kPanelFeatures];
  for (int row = call.first_row; row < call.last_row; row += kRowsPerBlock) {
    const int last_row =
        call.last_row - row < kRowsPerBlock ? call.last_row : row + kRowsPerBlock;
    for (int panel = call.first_panel; panel < call.last_panel; panel++) {
      const bool last = panel + 1 == call.last_panel;
      const std::byte* next =
          last && call.next_weights ? call.next_weights : call.weights->panel(panel + 1);
      multiply_panel(call, panel, row, last_row, next, block);
    }
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
