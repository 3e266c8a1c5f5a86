// bfloat16 and int8 GEMM on AMX tiles: 32 rows x 32 features at once, each tile 16 x 16 over all of K.
// For gemm_isa.cpp.
//
// A tile product computes each of its rows from that row's inputs alone, in the order of K, so
// rows that pad a tile (whatever memory holds there) do not touch the others, and one row alone
// gets the same bits as among 32.
#pragma once

#include "gemm_blocks.h"
#include "gemm_staged.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kTileRows = 16;
constexpr int64_t kPanelStepBytes = 2048;  // one tile step of a panel: two B tiles
constexpr int64_t kPanelRowBytes = 128;    // between rows of a B tile

// Eight tiles of 16 rows, tiles 0 to 5 of `bytes` and 6 and 7 of 64; while this lives on a thread.
class TileRegisters {
 public:
  explicit TileRegisters(int bytes = 64) {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; tile++) {
      config.row_bytes[tile] = static_cast<uint16_t>(tile < 6 ? bytes : 64);
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

// Prefetches spread over the tile instructions of a step. In a burst they would hold all line fill
// buffers and keep the tile loads waiting. Tiles are brought into the L1 cache one step ahead:
// where the tile unit is shared with another hardware thread, loads that miss it do not overlap.
template <int kRows, int kAhead>
class StepFetch {
 public:
  static constexpr int kSlots = kRows == kTileRows ? 5 : 8;

  // `x`: the input's first row at the next step. `weights`: its weights. `ahead`: kAhead lines.
  StepFetch(const std::byte* x, int64_t row_stride, const std::byte* weights,
            const std::byte* ahead)
      : x_(x), row_stride_(row_stride), weights_(weights), ahead_(ahead) {}

  template <int kSlot>
  CHAIRLIFT_INLINE void fetch() {
    constexpr auto first = [](int lines) { return lines * kSlot / kSlots; };
    constexpr auto end = [](int lines) { return lines * (kSlot + 1) / kSlots; };
#pragma GCC unroll 8
    for (int i = first(kAhead); i < end(kAhead); i++) __builtin_prefetch(ahead_ + 64 * i, 0, 2);
#pragma GCC unroll 8
    for (int i = first(kStepLines); i < end(kStepLines); i++) {
      __builtin_prefetch(weights_ + 64 * i, 0, 3);
    }
#pragma GCC unroll 8
    for (int i = first(kRows); i < end(kRows); i++) {
      __builtin_prefetch(x_, 0, 3);
      x_ += row_stride_;
      if (i % 2 != 0) asm("" : "+r"(x_));  // or g++ keeps a place for each row, and spills them
    }
  }

 private:
  static constexpr int kStepLines = kPanelStepBytes / 64;

  const std::byte* x_;
  const int64_t row_stride_;
  const std::byte* weights_;
  const std::byte* ahead_;
};

// What tiles hold: kInputs of K in a tile's 64 bytes. Rows lie in tiles 4 and 5, weights in 6 and 7,
// the sums in 0 to 3. In each step kFinished rows of the block before are finished. (The numbers
// are written out because g++ 12's intrinsics take literals only.)
struct Bf16Tiles {
  using Sums = FloatSums;
  static constexpr int kInputs = 32, kFinished = 2;
  template <int kSums>
  static CHAIRLIFT_INLINE void multiply() {
    if constexpr (kSums == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kSums == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kSums == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kSums == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

struct Int8Tiles {
  using Sums = Int8Sums<false>;
  static constexpr int kInputs = 64, kFinished = 4;
  template <int kSums>
  static CHAIRLIFT_INLINE void multiply() {
    if constexpr (kSums == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (kSums == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (kSums == 2) _tile_dpbssd(2, 5, 6);
    if constexpr (kSums == 3) _tile_dpbssd(3, 5, 7);
  }
};

// Where the inputs of tile products lie.
struct TileInputs {
  const std::byte* x;  // the first row
  int64_t stride_bytes;
  const std::byte* weights;
  int64_t num_steps;
};

// Sums of 16 (kTall: 32) rows x one panel into `sums` [32][32], which are those of `block`. Each
// step fetches kAhead lines, finishes some rows of the block before, and asks for the memory where
// as many rows of this block will go, so that neither memory nor the vector units idle while the
// tiles work.
template <class Tiles, bool kTall, int kAhead, class Block>
static CHAIRLIFT_INLINE void multiply_tiles(const TileInputs& inputs, const std::byte* ahead,
                                            typename Block::Element* sums, const Block& block,
                                            const Block& pending) {
  const int64_t stride_bytes = inputs.stride_bytes;
  const std::byte* x = inputs.x;
  const std::byte* x_low = x + kTileRows * stride_bytes;
  const std::byte* weights = inputs.weights;
  typename Block::OutputFetch out(block);
  RowFinisher<Block, Tiles::kFinished> rows(pending);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTall) {
    _tile_zero(2);
    _tile_zero(3);
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < inputs.num_steps; step++) {
    using Fetch = StepFetch<kTall ? 2 * kTileRows : kTileRows, kAhead>;
    Fetch next(x + 64, stride_bytes, weights + kPanelStepBytes, ahead);
    next.template fetch<0>();
    rows.template stage<0>();
    _tile_loadd(4, x, stride_bytes);
    next.template fetch<1>();
    rows.template stage<1>();
    _tile_loadd(6, weights, kPanelRowBytes);
    next.template fetch<2>();
    rows.template stage<2>();
    _tile_loadd(7, weights + 64, kPanelRowBytes);
    next.template fetch<3>();
    rows.template stage<3>();
    Tiles::template multiply<0>();
    next.template fetch<4>();
    rows.template stage<4>();
    Tiles::template multiply<1>();
    if constexpr (kTall) next.template fetch<5>();
    rows.template stage<5>();
    if constexpr (kTall) _tile_loadd(5, x_low, stride_bytes);
    if constexpr (kTall) next.template fetch<6>();
    rows.template stage<6>();
    if constexpr (kTall) Tiles::template multiply<2>();
    if constexpr (kTall) next.template fetch<7>();
    rows.template stage<7>();
    if constexpr (kTall) Tiles::template multiply<3>();
    out.template fetch<Tiles::kFinished>();
    x += 64;
    x_low += 64;
    weights += kPanelStepBytes;
    ahead += 64 * kAhead;
  }
  _tile_stored(0, sums, 128);
  _tile_stored(1, sums + kLanes, 128);
  if constexpr (kTall) {
    _tile_stored(2, sums + kTileRows * kPanelFeatures, 128);
    _tile_stored(3, sums + kTileRows * kPanelFeatures + kLanes, 128);
  }
  asm volatile("" : : "r"(sums) : "memory");  // g++ 12 does not see that they are written
  rows.finish_all();
}

// Multiplies block after block; the sums of each are finished during the next one.
template <class Tiles, Epilogue kEpilogue>
class TileGemm {
 public:
  explicit TileGemm(const GemmCall& call) : call_(call) {}

  void run() {
    for_each_block<kTallRows>(call_, rows_per_block(),
                              [this](const GemmBlock& block) { multiply_panel(block); });
    pending_.finish_all();
  }

 private:
  static constexpr int kTallRows = 2 * kTileRows;

  // Rows whose activations stay in the L2 cache while panels stream past.
  int rows_per_block() const {
    constexpr int64_t kBytes = 800 << 10, kMostRows = 256;
    const int64_t fitting = kBytes / (call_.weights->padded_in() * (64 / Tiles::kInputs));
    const int64_t rows = fitting < kMostRows ? fitting / kTallRows * kTallRows : kMostRows;
    return rows < kTallRows ? kTallRows : static_cast<int>(rows);
  }

  using Block = PendingBlock<kEpilogue, bf16, typename Tiles::Sums>;

  // The passes over a panel fetch the next one meanwhile: all of a step's 32 lines in one pass, or
  // equal parts in the first 2, 4 or 8.
  void multiply_panel(const GemmBlock& block) {
    const int num_passes = (block.end_row - block.first_row + kTallRows - 1) / kTallRows;
    num_passes >= 8   ? multiply_passes<4>(block)
    : num_passes >= 4 ? multiply_passes<8>(block)
    : num_passes >= 2 ? multiply_passes<16>(block)
                      : multiply_passes<32>(block);
  }

  template <int kAhead>
  void multiply_passes(const GemmBlock& block) {
    const int64_t part = static_cast<int64_t>(call_.weights->panel_weight_bytes()) * kAhead / 32;
    Tiles::Sums::fetch(call_, block.panel);
    int row = block.first_row;
    for (int pass = 0; row < block.end_row; pass++, row += kTallRows) {
      const int end = row + kTallRows < block.end_row ? row + kTallRows : block.end_row;
      const bool tall = end - row > kTileRows;
      if (pass < 32 / kAhead) {
        const std::byte* ahead = block.ahead + pass * part;
        tall ? multiply<true, kAhead>(block.panel, row, end, ahead)
             : multiply<false, kAhead>(block.panel, row, end, ahead);
      } else {
        tall ? multiply<true, 0>(block.panel, row, end, nullptr)
             : multiply<false, 0>(block.panel, row, end, nullptr);
      }
    }
  }

  TileInputs inputs_at(int row, int panel) const {
    const int64_t stride_bytes = call_.input_stride * (64 / Tiles::kInputs);
    return {call_.input + row * stride_bytes, stride_bytes, call_.weights->panel(panel),
            call_.weights->padded_in() / Tiles::kInputs};
  }

  template <bool kTall, int kAhead>
  __attribute__((noinline)) void multiply(int panel, int row, int end, const std::byte* ahead) {
    auto* sums = sums_[turn_];
    turn_ ^= 1;
    const Block block(call_, sums, row, end, panel);
    multiply_tiles<Tiles, kTall, kAhead>(inputs_at(row, panel), ahead, sums, block, pending_);
    pending_ = block;
  }

  const GemmCall& call_;
  Block pending_;
  int turn_ = 0;
  alignas(64) typename Tiles::Sums::Element sums_[2][kTallRows * kPanelFeatures];
};

template <class Tiles>
static inline void gemm_on_tiles(const GemmCall& call) {
  const TileRegisters registers;
  switch (call.epilogue) {
    case Epilogue::store:
      return TileGemm<Tiles, Epilogue::store>(call).run();
    case Epilogue::add:
      return TileGemm<Tiles, Epilogue::add>(call).run();
    case Epilogue::silu_mul:
      return TileGemm<Tiles, Epilogue::silu_mul>(call).run();
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
