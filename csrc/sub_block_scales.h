// The scales that GGUF's Q4_K and Q5_K pack to 6 bits each.
#pragma once

#include <cstdint>

namespace chairlift {

// Scales and minima of the eight sub-blocks of Q4_K and Q5_K: 6 bits each in 12 bytes. The first
// four of each lie whole in bytes 0-3 and 4-7; the last four have their low nibbles in bytes 8-11
// (scale low, minimum high) and their top two bits above the first four.
struct SubBlockScales {
  uint8_t scale[8];
  uint8_t minimum[8];
};

inline SubBlockScales unpack_scales(const uint8_t* packed) {
  SubBlockScales s;
  for (int j = 0; j < 4; ++j) {
    s.scale[j] = packed[j] & 0x3f;
    s.minimum[j] = packed[j + 4] & 0x3f;
    s.scale[j + 4] = static_cast<uint8_t>((packed[j + 8] & 0x0f) | (packed[j] >> 6 << 4));
    s.minimum[j + 4] = static_cast<uint8_t>((packed[j + 8] >> 4) | (packed[j + 4] >> 6 << 4));
  }
  return s;
}

}  // namespace chairlift
