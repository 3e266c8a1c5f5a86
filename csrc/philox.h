// Random numbers that are a pure function of what they are for.
//
// Philox4x32-10 is a counter-based generator: ten rounds of multiplications and exclusive-ors turn
// a 128-bit counter and a 64-bit key into 128 random bits. There is no state to lose, so batching,
// preemption and replay cannot change what a request draws.
// Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>

namespace chairlift {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The one draw of (seed, output position, choice): uniform in [0, 1), a multiple of 2^-53.
// The key is the seed; the counter is (position, 0, choice, 0), low word first.
inline double uniform_draw(uint64_t seed, uint32_t position, uint32_t choice) {
  const PhiloxCounter bits = philox4x32(
      {position, 0, choice, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (static_cast<uint64_t>(bits[1]) << 32) | bits[0];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

}  // namespace chairlift
