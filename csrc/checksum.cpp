#include "checksum.h"

#include <array>
#include <cstring>

namespace chairlift {
namespace {

constexpr size_t kLanes = 16;
using Words = std::array<uint32_t, kLanes>;

// Wide enough for 65,536 blocks of the largest words.
struct Sums {
  std::array<uint64_t, kLanes> first{}, second{};

  void add(const Words& words) {
    for (size_t i = 0; i < kLanes; i++) first[i] += words[i];
    for (size_t i = 0; i < kLanes; i++) second[i] += first[i];
  }
};

// One to one, and every bit counts for the bits below it as well as for those above.
uint64_t mixed(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ (x >> 32);
}

}  // namespace

uint64_t checksum(std::span<const std::byte> data) {
  Sums sums;
  size_t done = 0;
  for (; done + sizeof(Words) <= data.size(); done += sizeof(Words)) {
    Words words;
    std::memcpy(words.data(), data.data() + done, sizeof(Words));
    sums.add(words);
  }
  Words last{};
  if (done < data.size()) std::memcpy(last.data(), data.data() + done, data.size() - done);
  sums.add(last);
  uint64_t result = data.size();  // tells runs of zeros apart
  for (size_t i = 0; i < kLanes; i++) {
    result = mixed(result ^ sums.first[i]);
    result = mixed(result ^ sums.second[i]);
  }
  return result;
}

}  // namespace chairlift
