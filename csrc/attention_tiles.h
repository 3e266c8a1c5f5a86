// What attention's products on AMX tiles share. Part of attention_isa.cpp, for the amx level only.
#pragma once

#include "attention.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int kTileBytes = 1024;

// g++ 12's tile intrinsics do not say that they read memory: nothing may be moved across them.
static CHAIRLIFT_INLINE void settle_memory() { asm volatile("" : : : "memory"); }

// Asks for memory in the L1 cache: tile loads that miss it do not overlap.
static CHAIRLIFT_INLINE void fetch_for_tiles(const std::byte* at, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 3);
}

// A part of a tile from where it lies in the cache to where tiles are put together.
static CHAIRLIFT_INLINE void copy_lines(std::byte* to, const std::byte* from, int bytes) {
  for (int i = 0; i < bytes; i += 64) store_words(to + i, load_words(from + i));
}

// The shapes of the eight tiles, set again only when they change. All are 64 bytes wide; 0 to 5 are
// as high as there are rows, 6 and 7 hold K or V and are 16 high.
class TileShapes {
 public:
  void begin(int rows) {
    if (rows == configured_rows_) return;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {0, 0, 0, 0, 0, 0, 16, 16};
    } shapes;
    for (int i = 0; i < 6; i++) shapes.rows[i] = static_cast<uint8_t>(rows);
    asm volatile("" : : "r"(&shapes) : "memory");  // see settle_memory
    _tile_loadconfig(&shapes);
    configured_rows_ = rows;
  }
  void end() {
    if (configured_rows_ != 0) _tile_release();
    configured_rows_ = 0;
  }

 private:
  int configured_rows_ = 0;
};

}  // namespace chairlift::CHAIRLIFT_ISA
