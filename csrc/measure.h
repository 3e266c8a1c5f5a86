// What this machine can do, so that benchmarks can say how far from it the kernels are.
#pragma once

#include <cstddef>

#include "packed_matrix.h"
#include "thread_team.h"

namespace chairlift {

// Nanoseconds from one barrier of the team to the next.
double measure_barrier_ns(ThreadTeam& team);

// Bytes per second that the team reads from `bytes` of memory, each member its own part.
double measure_read_rate(ThreadTeam& team, size_t bytes);

// Operations per second (a multiply and an add are two) of products in registers alone, as
// current_isa() computes them for weights of this format: float32, bfloat16 or int8. Those kept as
// in a file are multiplied as bfloat16.
double measure_peak_rate(ThreadTeam& team, WeightFormat format);

// What a GEMM is asked to do: `num_rows` rows times [out_features, in_features].
struct GemmProbe {
  WeightFormat format;
  int num_rows;
  int in_features;
  int out_features;
  int repeats;
};

// Operations per second (a multiply and an add are two) with current_isa(). A small
// matrix stays in the caches, which shows what the arithmetic can do; a large one is read from
// memory at every repeat.
double measure_gemm_rate(ThreadTeam& team, const GemmProbe& probe);

}  // namespace chairlift
