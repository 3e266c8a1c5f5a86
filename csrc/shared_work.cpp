#include "shared_work.h"

#include "thread_team.h"

namespace chairlift {
namespace {

constexpr int kItemBits = 30;
constexpr uint64_t kItemMask = (uint64_t(1) << kItemBits) - 1;

uint64_t phase_of(uint64_t word) { return word >> (2 * kItemBits); }

uint64_t pack(uint64_t phase, int begin, int end) {
  return phase << (2 * kItemBits) | static_cast<uint64_t>(begin) << kItemBits |
         static_cast<uint64_t>(end);
}

// What members compute becomes visible at the barrier behind the phase, not through these words.
constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

}  // namespace

SharedWork::SharedWork(int num_members) : members_(static_cast<size_t>(num_members)) {}

SharedWork::Range SharedWork::left_to(int tid, uint64_t word, const Member& reader) const {
  if (phase_of(word) == reader.phase) {
    return {static_cast<int>(word >> kItemBits & kItemMask), static_cast<int>(word & kItemMask)};
  }
  const Share share = share_of(reader.count, tid, static_cast<int>(members_.size()));
  return {static_cast<int>(share.begin), static_cast<int>(share.end)};
}

void SharedWork::begin(int tid, int count) {
  Member& own = members_[static_cast<size_t>(tid)];
  own.phase = (own.phase + 1) & 0xf;
  own.count = count;
  uint64_t word = own.left.load(kRelaxed);
  if (phase_of(word) == own.phase) return;  // someone has taken from it already
  const Range all = left_to(tid, word, own);
  own.left.compare_exchange_strong(word, pack(own.phase, all.begin, all.end), kRelaxed);
}

int SharedWork::take(int tid) {
  Member& own = members_[static_cast<size_t>(tid)];
  uint64_t word = own.left.load(kRelaxed);
  while (true) {
    const Range left = left_to(tid, word, own);
    if (left.begin == left.end) return steal(tid);
    const uint64_t rest = pack(own.phase, left.begin + 1, left.end);
    if (own.left.compare_exchange_weak(word, rest, kRelaxed)) return left.begin;
  }
}

int SharedWork::likely_next(int tid) const {
  const Member& own = members_[static_cast<size_t>(tid)];
  const Range left = left_to(tid, own.left.load(kRelaxed), own);
  return left.begin == left.end ? -1 : left.begin;
}

int SharedWork::steal(int tid) {
  Member& own = members_[static_cast<size_t>(tid)];
  while (true) {
    int victim = -1;
    uint64_t word = 0;
    Range most = {0, 0};
    for (int other = 0; other < static_cast<int>(members_.size()); other++) {
      const uint64_t seen = members_[static_cast<size_t>(other)].left.load(kRelaxed);
      const Range left = left_to(other, seen, own);
      if (left.end - left.begin <= most.end - most.begin) continue;
      victim = other;
      word = seen;
      most = left;
    }
    if (victim < 0) return -1;
    const int middle = most.begin + (most.end - most.begin) / 2;
    const uint64_t rest = pack(own.phase, most.begin, middle);
    if (members_[static_cast<size_t>(victim)].left.compare_exchange_strong(word, rest, kRelaxed)) {
      // Its own range is empty, so nobody else writes it.
      own.left.store(pack(own.phase, middle + 1, most.end), kRelaxed);
      return middle;
    }
  }
}

}  // namespace chairlift
