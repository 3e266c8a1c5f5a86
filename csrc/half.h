// IEEE half precision, one value at a time.
#pragma once

#include <bit>
#include <cstdint>

namespace chairlift {

// Exact for every half, subnormals included even when the caller's thread flushes them to zero.
// No branches: masks choose among the three cases, so that loops over it vectorise.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t is_subnormal = 0u - static_cast<uint32_t>(magnitude < 0x0400);
  const uint32_t is_special = 0u - static_cast<uint32_t>(magnitude >= 0x7c00);  // inf and nan
  const uint32_t normal = (magnitude << 13) + 0x38000000u + (is_special & 0x38000000u);
  return std::bit_cast<float>(sign | (is_subnormal & subnormal) | (~is_subnormal & normal));
}

}  // namespace chairlift
