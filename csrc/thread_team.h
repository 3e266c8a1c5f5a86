// One persistent team of threads that runs a step together.
//
// The calling thread is member 0. Between steps and at barriers members spin for a bounded time
// and then sleep, so that an idle engine burns no core and an oversubscribed one makes progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace chairlift {

// A callable that is not owned: valid while the callable it was made from is.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)  // NOLINT: implicit by intention
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// An event count that waiters first spin on and then sleep on (futex through std::atomic::wait).
class SpinEvent {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  // Returns once value() differs from `seen`.
  void wait_while(uint32_t seen, int spins);
  // Adds one and wakes whoever sleeps.
  void advance();

 private:
  alignas(64) std::atomic<uint32_t> value_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

class ThreadTeam {
 public:
  // Starts num_threads - 1 workers. Throws std::invalid_argument if num_threads < 1.
  // When the team has as many members as there are allowed CPUs, each is pinned to its own (the
  // caller only while it is inside run()): two members that share a core halve the speed.
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Runs body(tid) on every member, tid = 0 .. size() - 1, and returns when all are done.
  // Not reentrant: one run at a time. `body` must not throw.
  void run(FunctionRef<void(int)> body);

  // Only inside run(): returns when every member has called it.
  void barrier();

 private:
  void work(int tid);

  const int size_;
  std::vector<int> cpus_;  // one per member, or empty: not pinned
  SpinEvent started_, arrived_all_;
  alignas(64) std::atomic<int> num_arrived_{0};
  const FunctionRef<void(int)>* body_ = nullptr;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

// Half-open share [begin, end) of `count` items that member tid of num_members gets.
struct Share {
  int64_t begin, end;
};
inline Share share_of(int64_t count, int tid, int num_members) {
  return {count * tid / num_members, count * (tid + 1) / num_members};
}

}  // namespace chairlift
