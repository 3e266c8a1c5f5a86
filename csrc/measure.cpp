#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "activation_rows.h"
#include "gemm.h"
#include "huge_buffer.h"
#include "peak_kernels.h"
#include "quantised_rows.h"

namespace chairlift {
namespace {

// Seconds that the team takes for body(tid), the members started together; best of three.
double best_time(ThreadTeam& team, FunctionRef<void(int)> body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int i = 0; i < 3; i++) {
    double seconds = 0;
    team.run([&](int tid) {
      team.barrier();
      const Clock::time_point start = Clock::now();
      body(tid);
      team.barrier();
      if (tid == 0) seconds = std::chrono::duration<double>(Clock::now() - start).count();
    });
    best = std::min(best, seconds);
  }
  return best;
}

uint64_t read_words(const uint64_t* words, int64_t count) {
  constexpr int64_t kLine = 8, kAhead = 512;  // in words; 4 KiB ahead, as the kernels fetch
  uint64_t all = 0;
  for (int64_t i = 0; i + kLine <= count; i += kLine) {
    __builtin_prefetch(words + i + kAhead, 0, 2);
    for (int64_t j = 0; j < kLine; j++) all |= words[i + j];
  }
  return all;
}

}  // namespace

double measure_barrier_ns(ThreadTeam& team) {
  constexpr int kBarriers = 5000;
  const double seconds = best_time(team, [&](int) {
    for (int i = 0; i < kBarriers; i++) team.barrier();
  });
  return seconds / kBarriers * 1e9;
}

double measure_read_rate(ThreadTeam& team, size_t bytes) {
  const HugeBuffer memory(bytes);
  const int64_t count = static_cast<int64_t>(memory.bytes() / 8);
  std::vector<uint64_t> sums(static_cast<size_t>(team.size()));
  const auto part = [&](int tid) { return share_of(count, tid, team.size()); };
  team.run([&](int tid) {
    const Share share = part(tid);
    std::memset(memory.as<uint64_t>() + share.begin, 1, size_t(share.end - share.begin) * 8);
  });
  const double seconds = best_time(team, [&](int tid) {
    const Share share = part(tid);
    sums[static_cast<size_t>(tid)] =
        read_words(memory.as<uint64_t>() + share.begin, share.end - share.begin);
    asm volatile("" : : "g"(sums.data()) : "memory");  // the sums are wanted
  });
  return static_cast<double>(count) * 8 / seconds;
}

double measure_peak_rate(ThreadTeam& team, WeightFormat format) {
  constexpr int64_t kRounds = 200'000;
  const PeakKernels& kernels = peak_kernels(current_isa());
  const auto run = format == WeightFormat::float32 ? kernels.float32
                   : format == WeightFormat::int8  ? kernels.int8
                                                   : kernels.bfloat16;
  std::vector<int64_t> operations(static_cast<size_t>(team.size()));
  const double seconds = best_time(
      team, [&](int tid) { operations[static_cast<size_t>(tid)] = run(kRounds); });
  return static_cast<double>(operations[0]) * team.size() / seconds;
}

double measure_gemm_rate(ThreadTeam& team, const GemmProbe& probe) {
  PackedMatrix weights = {probe.format, probe.out_features, probe.in_features, nullptr};
  const HugeBuffer weight_memory(weights.bytes());
  weights.data = weight_memory.data();
  // 1.0 in bfloat16; a normal number near it in float32, and in half precision.
  std::fill_n(weight_memory.as<uint16_t>(), weights.bytes() / 2, uint16_t(0x3f80));
  const bool is_int8 = probe.format == WeightFormat::int8;
  const ActivationRows input(probe.num_rows, probe.in_features,
                             probe.format == WeightFormat::float32 ? ElementType::float32
                                                                   : ElementType::bfloat16);
  const QuantisedRows bytes(probe.num_rows, probe.in_features);
  const std::vector<float> input_scales(static_cast<size_t>(probe.num_rows), 1.0f);
  const ActivationRows out(probe.num_rows, probe.out_features, ElementType::float32);
  const size_t scratch_bytes = gemm_scratch_bytes(weights.padded_in());
  const HugeBuffer scratch(scratch_bytes * static_cast<size_t>(team.size()));
  const GemmKernels& kernels = gemm_kernels(current_isa());
  const GemmFunction kernel = kernels.of(weights.format);
  SharedWork work(team.size());
  const double seconds = best_time(team, [&](int tid) {
    const GemmCall call = {
        .input = is_int8 ? reinterpret_cast<const std::byte*>(bytes.row(0)) : input.row(0),
        .input_stride = is_int8 ? bytes.stride() : input.stride(),
        .input_scales = input_scales.data(),
        .num_rows = probe.num_rows,
        .weights = &weights,
        .work = {&work, tid},
        .epilogue = Epilogue::store,
        .bias = nullptr,
        .out = out.row(0),
        .out_stride = out.stride(),
        .out_columns = probe.out_features,
        .next_weights = nullptr,
        .scratch = scratch.data() + scratch_bytes * static_cast<size_t>(tid),
    };
    for (int i = 0; i < probe.repeats; i++) {
      kernel(call);
      team.barrier();
    }
  });
  return 2.0 * probe.num_rows * probe.in_features * probe.out_features * probe.repeats / seconds;
}

}  // namespace chairlift
