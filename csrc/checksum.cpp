#include "checksum.h"

#include <array>
#include <cstring>

namespace chairlift {
namespace {

constexpr size_t kLanes = 8;
using Words = std::array<uint64_t, kLanes>;

struct Sums {
  Words first{}, second{};

  void add(const Words& words) {
    for (size_t i = 0; i < kLanes; i++) first[i] += words[i];
    for (size_t i = 0; i < kLanes; i++) second[i] += first[i];
  }
};

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
  // Odd multipliers keep the lanes apart; the size tells ends of zeros apart.
  uint64_t result = data.size();
  for (size_t i = 0; i < kLanes; i++) {
    result = (result ^ sums.first[i]) * 0x9e3779b97f4a7c15u;
    result = (result ^ sums.second[i]) * 0xd1b54a32d192ed03u;
  }
  return result;
}

}  // namespace chairlift
