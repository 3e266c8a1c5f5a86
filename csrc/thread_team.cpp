#include "thread_team.h"

#include <stdexcept>
#include <string>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace chairlift {
namespace {

// About 20-40 microseconds: longer than any imbalance inside a step, shorter than a sleep's harm.
constexpr int kBarrierSpins = 1000;
// Between steps: the scheduler and sampler take a few hundred microseconds; not worth burning.
constexpr int kIdleSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#if defined(__linux__)

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Keeps the calling thread on one CPU for as long as it lives; cpu < 0: does nothing.
class ScopedPin {
 public:
  explicit ScopedPin(int cpu) {
    if (cpu < 0 || pthread_getaffinity_np(pthread_self(), sizeof(before_), &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pinned_ = pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0;
  }
  ~ScopedPin() {
    if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof(before_), &before_);
  }
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

#else

std::vector<int> allowed_cpus() { return {}; }
struct ScopedPin {
  explicit ScopedPin(int) {}
};

#endif

int checked_size(int num_threads) {
  if (num_threads < 1) {
    throw std::invalid_argument("num_threads must be at least 1, got " +
                                std::to_string(num_threads));
  }
  return num_threads;
}

}  // namespace

void SpinEvent::wait_while(uint32_t seen, int spins) {
  for (int i = 0; i < spins; i++) {
    if (value() != seen) return;
    pause();
  }
  // seq_cst pairs with advance(): either it sees this sleeper, or wait() sees the new value.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == seen) {
    value_.wait(seen, std::memory_order_seq_cst);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void SpinEvent::advance() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify_all();
}

ThreadTeam::ThreadTeam(int num_threads) : size_(checked_size(num_threads)) {
  std::vector<int> cpus = allowed_cpus();
  if (static_cast<int>(cpus.size()) == size_) cpus_ = cpus;
  for (int tid = 1; tid < size_; tid++) workers_.emplace_back([this, tid] { work(tid); });
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  started_.advance();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::run(FunctionRef<void(int)> body) {
  const ScopedPin pin(cpus_.empty() ? -1 : cpus_[0]);
  body_ = &body;
  started_.advance();
  body(0);
  barrier();
}

void ThreadTeam::barrier() {
  const uint32_t generation = arrived_all_.value();
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    num_arrived_.store(0, std::memory_order_relaxed);
    arrived_all_.advance();
  } else {
    arrived_all_.wait_while(generation, kBarrierSpins);
  }
}

void ThreadTeam::work(int tid) {
  const ScopedPin pin(cpus_.empty() ? -1 : cpus_[tid]);
  uint32_t seen = 0;
  while (true) {
    started_.wait_while(seen, kIdleSpins);
    seen++;
    if (stopping_) return;
    (*body_)(tid);
    barrier();
  }
}

}  // namespace chairlift
