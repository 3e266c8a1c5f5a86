// Where the time of a step goes, as member 0 of the team sees it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace chairlift {

enum class Phase {
  embed,
  norm,
  qkv,
  rope,
  attention,
  quantise,
  o,
  gate_up,
  down,
  head,
  barrier
};
constexpr std::array<const char*, 11> kPhaseNames = {
    "embed", "norm",    "qkv",  "rope", "attention", "quantise",
    "o",     "gate_up", "down", "head", "barrier"};

// Nanoseconds per phase, summed up since the last reset.
class PhaseTimers {
 public:
  // Starts the first phase of a region.
  void start() { last_ = Clock::now(); }
  // Counts the time since the last call for `phase`.
  void lap(Phase phase) {
    const Clock::time_point now = Clock::now();
    nanoseconds_[static_cast<size_t>(phase)] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
    last_ = now;
  }
  void reset() { nanoseconds_ = {}; }
  const std::array<int64_t, kPhaseNames.size()>& nanoseconds() const { return nanoseconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  std::array<int64_t, kPhaseNames.size()> nanoseconds_ = {};
};

}  // namespace chairlift
