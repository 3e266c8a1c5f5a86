// The passes over a row of logits that sampling is made of.
//
// Sums run over 16 lanes in a fixed order, so every instruction set level with fused multiply-add
// gives the same bits (the portable level rounds exponentials once more). Rows need no alignment.
// Values must not be NaN, except where `scan_max` looks for them. Comparisons treat -0 and 0 alike.
#pragma once

#include <cstdint>

#include "isa.h"

namespace chairlift {

// Elements whose weights are summed in float32 before the sum is carried on in float64.
constexpr int32_t kSumBlock = 1024;

// Thresholds that one `ladder` pass measures.
constexpr int kLadderSteps = 8;

// Elements that may be written past the last one of an output array.
constexpr int32_t kOutputPadding = 16;

constexpr int32_t num_sum_blocks(int32_t n) { return (n + kSumBlock - 1) / kSumBlock; }

// `usable` is false when the row holds NaN or +inf, or nothing above -inf; `value` then means
// nothing.
struct RowMax {
  float value;
  bool usable;
};

struct ValueRange {
  float min, max;
};

// Candidates in the order of their ids. `ids` null: 0, 1, 2, ... `weights` null: none needed.
struct Candidates {
  const float* logits;
  const int32_t* ids;
  const float* weights;
  int32_t n;
};

// Where `keep` writes; each array holds n + kOutputPadding elements and may be its own input.
// `weights` is written when the candidates have weights.
struct CandidateBuffer {
  float* logits;
  int32_t* ids;
  float* weights;
};

// Keeps min_logit < logit <= max_logit, and of those equal to min_logit the ids up to last_id.
struct KeepRule {
  float min_logit;
  int32_t last_id;
  float max_logit;
};

struct SamplerKernels {
  RowMax (*scan_max)(const float* x, int32_t n);
  ValueRange (*scan_range)(const float* x, int32_t n);

  // First index >= begin with x[index] > threshold (equal to value), or n.
  int32_t (*find_above)(const float* x, int32_t begin, int32_t n, float threshold);
  int32_t (*find_equal)(const float* x, int32_t begin, int32_t n, float value);
  int32_t (*count_above)(const float* x, int32_t n, float threshold);
  int32_t (*count_equal)(const float* x, int32_t n, float value);

  // weights[i] = exp((x[i] - max) * scale), and their sum over each block of kSumBlock in
  // block_sums[num_sum_blocks(n)]. No x may be above max. `weights`, if not null, holds
  // n + kOutputPadding elements. Weights below 2^-126 are zero.
  void (*exponentials)(const float* x, int32_t n, float max, float scale, float* weights,
                       double* block_sums);
  void (*sum_blocks)(const float* weights, int32_t n, double* block_sums);

  // sums[j] = weight of the candidates with a logit above thresholds[j]; without weights their
  // number.
  void (*ladder)(const Candidates& candidates, const float thresholds[kLadderSteps],
                 double sums[kLadderSteps]);

  // Copies the candidates that `rule` keeps, in order; returns how many.
  int32_t (*keep)(const Candidates& candidates, const KeepRule& rule, const CandidateBuffer& out);
};

CHAIRLIFT_DECLARE_KERNELS(SamplerKernels, sampler_kernels)

}  // namespace chairlift
