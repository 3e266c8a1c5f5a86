// What this machine can do, so that benchmarks can say how far from it the kernels are.
#pragma once

#include <cstddef>

#include "kv_cache.h"
#include "thread_team.h"

namespace chairlift {

// Nanoseconds from one barrier of the team to the next.
double measure_barrier_ns(ThreadTeam& team);

// Bytes per second that the team reads from `bytes` of memory, each member its own part.
double measure_read_rate(ThreadTeam& team, size_t bytes);

// What a GEMM is asked to do: `num_rows` rows times [out_features, in_features].
struct GemmProbe {
  ElementType type;
  int num_rows;
  int in_features;
  int out_features;
  int repeats;
};

// Floating-point operations per second (a multiply and an add are two) with current_isa(). A small
// matrix stays in the caches, which shows what the arithmetic can do; a large one is read from
// memory at every repeat.
double measure_gemm_rate(ThreadTeam& team, const GemmProbe& probe);

}  // namespace chairlift
