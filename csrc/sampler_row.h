// Sampling from one row of logits, and what is reported about it.
//
// Candidates are ordered by logit, the larger first, ties by the lower id; top_k, top_p, ranks and
// greedy choice all mean this order. A token is drawn by walking the kept candidates in the order
// of their ids until their summed weight exceeds the draw, so nothing is ever sorted except a few
// candidates around a cut.
#pragma once

#include <cstdint>
#include <memory>

#include "sampler_kernels.h"

namespace chairlift {

// How a row is drawn from. `temperature` > 0.
struct DrawRule {
  float temperature = 1.0f;
  int32_t top_k = 0;   // 0: all
  double top_p = 1.0;  // 1: all
  float min_p = 0.0f;  // 0: all
};

// Memory of one thread, for rows of up to `vocab_size` logits.
class SamplerScratch {
 public:
  explicit SamplerScratch(int32_t vocab_size);

  float* modified_logits() { return modified_.get(); }
  float* weights() { return kept_weights_.get(); }
  double* block_sums() { return block_sums_.get(); }
  CandidateBuffer kept() { return {kept_logits_.get(), kept_ids_.get(), kept_weights_.get()}; }
  CandidateBuffer bracket() {
    return {bracket_logits_.get(), bracket_ids_.get(), bracket_weights_.get()};
  }

 private:
  std::unique_ptr<float[]> modified_, kept_logits_, kept_weights_, bracket_logits_,
      bracket_weights_;
  std::unique_ptr<int32_t[]> kept_ids_, bracket_ids_;
  std::unique_ptr<double[]> block_sums_;
};

// The first token with the largest logit, which is `max`.
int32_t pick_greedy(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                    float max);

// Draws a token: `uniform` in [0, 1) decides. The logits hold no NaN, their maximum `max` is
// finite; -inf is never drawn.
int32_t draw_token(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                   float max, const DrawRule& rule, double uniform, SamplerScratch& scratch);

// log(sum(exp(logits - max))) in float64: a logprob is (logit - max) minus this.
double log_sum_exp(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                   float max, SamplerScratch& scratch);

// The first `k` <= vocab_size candidates of a row, best first, into ids[k].
void select_top(const SamplerKernels& kernels, const float* logits, int32_t vocab_size, int32_t k,
                int32_t* ids);

// Place of a token in the order of candidates; 1 is the likeliest.
int32_t rank_of(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                int32_t token_id);

}  // namespace chairlift
