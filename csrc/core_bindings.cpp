#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "file_blocks.h"
#include "isa.h"
#include "measure.h"
#include "shared_work.h"
#include "thread_team.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace chairlift {
namespace {

std::vector<std::string> available_isa_names() {
  std::vector<std::string> names;
  for (Isa isa : available_isas()) names.push_back(isa_name(isa));
  return names;
}

WeightFormat parse_weight_format(std::string_view name) {
  struct Named {
    std::string_view name;
    WeightFormat format;
  };
  constexpr Named kFormats[] = {
      {"float32", WeightFormat::float32}, {"bfloat16", WeightFormat::bfloat16},
      {"int8", WeightFormat::int8},       {"Q4_0", WeightFormat::q4_0},
      {"Q4_1", WeightFormat::q4_1},       {"Q8_0", WeightFormat::q8_0},
      {"Q4_K", WeightFormat::q4_k},       {"Q6_K", WeightFormat::q6_k},
  };
  for (const Named& known : kFormats) {
    if (known.name == name) return known.format;
  }
  throw std::invalid_argument(
      "weights must be float32, bfloat16, int8, Q4_0, Q4_1, Q8_0, Q4_K or Q6_K, got " +
      std::string(name));
}

double peak_rate(ThreadTeam& team, std::string_view weights) {
  return measure_peak_rate(team, parse_weight_format(weights));
}

double gemm_rate(ThreadTeam& team, std::string_view weights, int num_rows, int in_features,
                 int out_features, int repeats) {
  if (num_rows < 1 || in_features < 1 || out_features < 1 || repeats < 1) {
    throw std::invalid_argument(
        "num_rows, in_features, out_features and repeats must be at least 1");
  }
  const WeightFormat format = parse_weight_format(weights);
  const int block = !is_file_format(format) ? 1 : kFileBlock * file_layout(format).group_blocks;
  if (in_features % block != 0) {
    throw std::invalid_argument("in_features must be a multiple of " + std::to_string(block) +
                                " for " + std::string(weights) + ", got " +
                                std::to_string(in_features));
  }
  return measure_gemm_rate(team, {format, num_rows, in_features, out_features, repeats});
}

// Any number of phases of `count` items on a team: how often each item was given to a member.
std::vector<int> deal_out(ThreadTeam& team, int count, int num_phases) {
  SharedWork work(team.size());
  std::vector<std::atomic<int>> times(static_cast<size_t>(count));
  team.run([&](int tid) {
    for (int phase = 0; phase < num_phases; phase++) {
      work.begin(tid, count);
      for (int item = work.take(tid); item >= 0; item = work.take(tid)) {
        times[static_cast<size_t>(item)].fetch_add(1, std::memory_order_relaxed);
      }
      team.barrier();
    }
  });
  return {times.begin(), times.end()};
}

}  // namespace

void bind_core(nb::module_& m) {
  m.def("available_isas", &available_isa_names);
  m.def("current_isa", [] { return std::string(isa_name(current_isa())); });

  using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<ThreadTeam>(m, "ThreadTeam")
      .def(nb::init<int>(), "num_threads"_a)
      .def_prop_ro("size", &ThreadTeam::size)
      .def("barrier_ns", &measure_barrier_ns, ReleaseGil())
      .def("read_rate", &measure_read_rate, "num_bytes"_a, ReleaseGil())
      .def("peak_rate", &peak_rate, "weights"_a, ReleaseGil())
      .def("gemm_rate", &gemm_rate, "weights"_a, "num_rows"_a, "in_features"_a, "out_features"_a,
           "repeats"_a, ReleaseGil())
      .def("deal_out", &deal_out, "count"_a, "num_phases"_a, ReleaseGil());

  nb::class_<SharedWork>(m, "SharedWork")
      .def(nb::init<int>(), "num_members"_a)
      .def("begin", &SharedWork::begin, "tid"_a, "count"_a)
      .def("take", &SharedWork::take, "tid"_a)
      .def("likely_next", &SharedWork::likely_next, "tid"_a);
}

}  // namespace chairlift
