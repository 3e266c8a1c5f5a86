// Sampling for a batch: what each request asked for, by slot, and one call a step.
//
// Nothing of the random stream is state: a draw is a function of seed, output position and choice
// (philox.h), so a token does not depend on the batch, the threads, or what was computed twice.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sampler_row.h"
#include "thread_team.h"

namespace chairlift {

struct SamplingSettings {
  DrawRule draw;
  bool greedy = false;
  uint64_t seed = 0;
  uint32_t choice = 0;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t min_tokens = 0;
  int32_t num_logprobs = -1;  // -1: not even the chosen token's
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> end_token_ids;  // not sampled before min_tokens

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

enum class SampleStatus : uint8_t {
  ok = 0,
  bad_logits = 1,     // NaN or +inf, or nothing above -inf, from the model
  nothing_left = 2,   // masks and biases leave no token
  overflow = 3,       // penalties made a logit infinite
};

struct SampleBatch {
  const float* logits;  // [num_rows, vocab_size], never written
  int32_t num_rows;
  const int32_t* slots;             // [num_rows]
  const int32_t* output_positions;  // [num_rows] output tokens before this one
  const uint32_t* allowed_bits;     // [num_rows, num_mask_words()], or null: all allowed
};

struct SampleResult {
  SampleStatus* statuses;  // [num_rows]
  int32_t* token_ids;      // [num_rows]; -1 where the status is not ok
  float* logprobs;         // [num_rows]; NaN where not asked for
  int32_t* ranks;          // [num_rows]; 0 where not asked for
  // [num_rows, num_top]; -1 and -inf past what the row asked for
  int32_t* top_ids;
  float* top_logprobs;
  int32_t num_top;
};

class Sampler {
 public:
  // Throws std::invalid_argument if vocab_size < 1.
  Sampler(int32_t vocab_size, ThreadTeam& team, Isa isa);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  int32_t vocab_size() const { return vocab_size_; }
  int32_t num_mask_words() const { return (vocab_size_ + 31) / 32; }

  // Takes the slot for a request with these tokens so far.
  // Throws std::invalid_argument for ids outside the vocabulary and a slot that is taken.
  void add(int32_t slot, SamplingSettings settings, const int32_t* prompt, int64_t prompt_length,
           const int32_t* output, int64_t output_length);
  // Frees the slot. Throws std::invalid_argument if it is free.
  void remove(int32_t slot);
  // Counts a new output token for the penalties. Throws std::invalid_argument as add does.
  void append(int32_t slot, int32_t token_id);

  // Largest num_logprobs among the slots, at least 0. Throws std::invalid_argument for a free one.
  int32_t max_num_logprobs(const int32_t* slots, int32_t num_rows) const;

  // Slots must be taken (see max_num_logprobs) and positions not negative.
  void sample(const SampleBatch& batch, const SampleResult& result);

  // Reports the model's logprob and rank of one given token a row; writes all but token_ids.
  void score(const float* logits, int32_t num_rows, const int32_t* token_ids,
             const SampleResult& result);

 private:
  // Occurrences of a token; `count` is 0 for one that is only in the prompt.
  struct TokenUse {
    int32_t token_id;
    int32_t count;
  };
  struct Slot {
    bool is_taken = false;
    SamplingSettings settings;
    std::vector<TokenUse> uses;  // by token id; empty without penalties
  };

  const Slot& taken(int32_t slot) const;
  Slot& taken(int32_t slot) { return const_cast<Slot&>(std::as_const(*this).taken(slot)); }
  void check_ids(const char* name, const int32_t* ids, int64_t n) const;
  void for_each_row(int32_t num_rows, FunctionRef<void(int32_t, SamplerScratch&)> body);

  SampleStatus sample_row(const SampleBatch& batch, int32_t row, SamplerScratch& scratch,
                          const SampleResult& result) const;
  const float* modify(const float* logits, const Slot& slot, int32_t position,
                      const uint32_t* allowed_bits, SamplerScratch& scratch) const;
  void report(const float* logits, float max, int32_t row, int32_t token_id, int32_t num_top,
              SamplerScratch& scratch, const SampleResult& result) const;

  const int32_t vocab_size_;
  ThreadTeam& team_;
  const SamplerKernels& kernels_;
  std::vector<Slot> slots_;
  std::vector<SamplerScratch> scratch_;  // by team member
};

}  // namespace chairlift
