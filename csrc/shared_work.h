// The items of a phase, dealt out among the members of a team while they work.
//
// Each member starts with an equal share of consecutive items. Who is through with its own takes
// half of what another has left, from the back: a member on a core that is slower just now ends up
// with less, and nobody waits long at the barrier. Results must not depend on who computed them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace chairlift {

class SharedWork {
 public:
  static constexpr int kMaxItems = (1 << 30) - 1;

  explicit SharedWork(int num_members);
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  // Member `tid` enters its next phase, of items 0 .. count - 1 (at most kMaxItems). All members
  // enter the same phases in the same order, with a barrier between one's last take() and the next.
  void begin(int tid, int count);
  // An item of the phase for this member alone, or -1: none is left.
  int take(int tid);
  // What take() will probably return next, or -1 if it will be an item of someone else's share.
  int likely_next(int tid) const;

 private:
  struct Range {
    int begin, end;
  };
  // A half-open range of items, 30 bits each, under the phase (modulo 16) that they belong to.
  // A range of the phase before stands for the member's whole first share of this one, so that
  // others can take from a member that has not arrived yet.
  struct alignas(64) Member {
    std::atomic<uint64_t> left{0};
    alignas(64) uint64_t phase = 0;  // this and `count`: read and written by the member only
    int count = 0;
  };

  Range left_to(int tid, uint64_t word, const Member& reader) const;
  int steal(int tid);

  std::vector<Member> members_;
};

// One member's view of it.
struct MemberWork {
  SharedWork* work;
  int tid;

  void begin(int count) const { work->begin(tid, count); }
  int take() const { return work->take(tid); }
  int likely_next() const { return work->likely_next(tid); }
};

}  // namespace chairlift
