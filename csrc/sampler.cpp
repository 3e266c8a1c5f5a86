#include "sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "philox.h"

namespace chairlift {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void keep_allowed(const uint32_t* allowed_bits, int32_t vocab_size, float* logits) {
  for (int32_t id = 0; id < vocab_size; ++id) {
    const bool is_allowed = (allowed_bits[id / 32] >> (id % 32)) & 1u;
    logits[id] = is_allowed ? logits[id] : -kInfinity;
  }
}

}  // namespace

Sampler::Sampler(int32_t vocab_size, ThreadTeam& team, Isa isa)
    : vocab_size_(vocab_size), team_(team), kernels_(sampler_kernels(isa)) {
  if (vocab_size < 1) {
    throw std::invalid_argument("vocab_size must be at least 1, got " +
                                std::to_string(vocab_size));
  }
  for (int member = 0; member < team.size(); ++member) scratch_.emplace_back(vocab_size);
}

const Sampler::Slot& Sampler::taken(int32_t slot) const {
  if (slot < 0 || static_cast<size_t>(slot) >= slots_.size() || !slots_[slot].is_taken) {
    throw std::invalid_argument("slot " + std::to_string(slot) +
                                " holds no request; add one first");
  }
  return slots_[slot];
}

void Sampler::check_ids(const char* name, const int32_t* ids, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size_) {
      throw std::invalid_argument(std::string(name) + " holds " + std::to_string(ids[i]) +
                                  ", but the vocabulary has ids 0 to " +
                                  std::to_string(vocab_size_ - 1));
    }
  }
}

void Sampler::add(int32_t slot, SamplingSettings settings, const int32_t* prompt,
                  int64_t prompt_length, const int32_t* output, int64_t output_length) {
  if (slot < 0) {
    throw std::invalid_argument("slot must not be negative, got " + std::to_string(slot));
  }
  if (static_cast<size_t>(slot) < slots_.size() && slots_[slot].is_taken) {
    throw std::invalid_argument("slot " + std::to_string(slot) +
                                " is taken; remove its request first");
  }
  check_ids("prompt_token_ids", prompt, prompt_length);
  check_ids("output_token_ids", output, output_length);
  for (const auto& [id, bias] : settings.logit_bias) check_ids("logit_bias", &id, 1);
  check_ids("end_token_ids", settings.end_token_ids.data(),
            static_cast<int64_t>(settings.end_token_ids.size()));

  if (static_cast<size_t>(slot) >= slots_.size()) slots_.resize(slot + 1);
  Slot& taken_slot = slots_[slot];
  taken_slot.is_taken = true;
  taken_slot.settings = std::move(settings);
  if (taken_slot.settings.repetition_penalty != 1.0f) {
    std::vector<int32_t> seen(prompt, prompt + prompt_length);
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int32_t id : seen) taken_slot.uses.push_back({id, 0});
  }
  for (int64_t i = 0; i < output_length; ++i) append(slot, output[i]);
}

void Sampler::remove(int32_t slot) { taken(slot) = Slot{}; }

void Sampler::append(int32_t slot, int32_t token_id) {
  Slot& found = taken(slot);
  check_ids("token_id", &token_id, 1);
  if (!found.settings.has_penalties()) return;
  const auto place = std::lower_bound(
      found.uses.begin(), found.uses.end(), token_id,
      [](const TokenUse& use, int32_t id) { return use.token_id < id; });
  if (place != found.uses.end() && place->token_id == token_id) {
    ++place->count;
  } else {
    found.uses.insert(place, {token_id, 1});
  }
}

int32_t Sampler::max_num_logprobs(const int32_t* slots, int32_t num_rows) const {
  int32_t most = 0;
  for (int32_t row = 0; row < num_rows; ++row) {
    most = std::max(most, taken(slots[row]).settings.num_logprobs);
  }
  return most;
}

void Sampler::for_each_row(int32_t num_rows, FunctionRef<void(int32_t, SamplerScratch&)> body) {
  if (num_rows <= 1) {
    if (num_rows == 1) body(0, scratch_[0]);
    return;
  }
  std::atomic<int32_t> next{0};
  team_.run([&](int member) {
    for (int32_t row = next++; row < num_rows; row = next++) body(row, scratch_[member]);
  });
}

void Sampler::sample(const SampleBatch& batch, const SampleResult& result) {
  for_each_row(batch.num_rows, [&](int32_t row, SamplerScratch& scratch) {
    result.statuses[row] = sample_row(batch, row, scratch, result);
  });
}

SampleStatus Sampler::sample_row(const SampleBatch& batch, int32_t row, SamplerScratch& scratch,
                                 const SampleResult& result) const {
  const float* logits = batch.logits + static_cast<int64_t>(row) * vocab_size_;
  const Slot& slot = slots_[batch.slots[row]];
  const SamplingSettings& settings = slot.settings;
  const int32_t position = batch.output_positions[row];
  result.token_ids[row] = -1;

  const RowMax model_max = kernels_.scan_max(logits, vocab_size_);
  if (!model_max.usable) return SampleStatus::bad_logits;
  const uint32_t* allowed =
      batch.allowed_bits == nullptr
          ? nullptr
          : batch.allowed_bits + static_cast<int64_t>(row) * num_mask_words();
  const float* modified = modify(logits, slot, position, allowed, scratch);
  RowMax max = model_max;
  if (modified != logits) {
    max = kernels_.scan_max(modified, vocab_size_);
    if (!max.usable) {
      return max.value == -kInfinity ? SampleStatus::nothing_left : SampleStatus::overflow;
    }
  }
  const int32_t token_id =
      settings.greedy
          ? pick_greedy(kernels_, modified, vocab_size_, max.value)
          : draw_token(kernels_, modified, vocab_size_, max.value, settings.draw,
                       uniform_draw(settings.seed, position, settings.choice), scratch);
  result.token_ids[row] = token_id;
  if (settings.num_logprobs >= 0) {
    report(logits, model_max.value, row, token_id, settings.num_logprobs, scratch, result);
  }
  return SampleStatus::ok;
}

// Order: masks, bias, repetition, frequency and presence penalty.
const float* Sampler::modify(const float* logits, const Slot& slot, int32_t position,
                             const uint32_t* allowed_bits, SamplerScratch& scratch) const {
  const SamplingSettings& settings = slot.settings;
  const bool may_end = position >= settings.min_tokens || settings.end_token_ids.empty();
  if (allowed_bits == nullptr && may_end && settings.logit_bias.empty() && slot.uses.empty()) {
    return logits;
  }
  float* modified = scratch.modified_logits();
  std::memcpy(modified, logits, sizeof(float) * static_cast<size_t>(vocab_size_));
  if (allowed_bits != nullptr) keep_allowed(allowed_bits, vocab_size_, modified);
  if (!may_end) {
    for (const int32_t id : settings.end_token_ids) modified[id] = -kInfinity;
  }
  for (const auto& [id, bias] : settings.logit_bias) modified[id] += bias;
  for (const auto& [id, count] : slot.uses) {
    float& logit = modified[id];
    logit = logit > 0.0f ? logit / settings.repetition_penalty
                         : logit * settings.repetition_penalty;
    if (count > 0) {
      logit -= settings.frequency_penalty * static_cast<float>(count);
      logit -= settings.presence_penalty;
    }
  }
  return modified;
}

void Sampler::report(const float* logits, float max, int32_t row, int32_t token_id, int32_t num_top,
                     SamplerScratch& scratch, const SampleResult& result) const {
  const double log_sum = log_sum_exp(kernels_, logits, vocab_size_, max, scratch);
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - max - log_sum);
  };
  result.logprobs[row] = logprob(token_id);
  int32_t* ids = result.top_ids + static_cast<int64_t>(row) * result.num_top;
  float* logprobs = result.top_logprobs + static_cast<int64_t>(row) * result.num_top;
  const int32_t count = std::min(num_top, vocab_size_);
  select_top(kernels_, logits, vocab_size_, count, ids);
  for (int32_t i = 0; i < count; ++i) logprobs[i] = logprob(ids[i]);
  const int32_t* place = std::find(ids, ids + count, token_id);
  result.ranks[row] = place != ids + count
                          ? static_cast<int32_t>(place - ids) + 1
                          : rank_of(kernels_, logits, vocab_size_, token_id);
}

void Sampler::score(const float* logits, int32_t num_rows, const int32_t* token_ids,
                    const SampleResult& result) {
  check_ids("token_ids", token_ids, num_rows);
  for_each_row(num_rows, [&](int32_t row, SamplerScratch& scratch) {
    const float* row_logits = logits + static_cast<int64_t>(row) * vocab_size_;
    const RowMax max = kernels_.scan_max(row_logits, vocab_size_);
    result.statuses[row] = max.usable ? SampleStatus::ok : SampleStatus::bad_logits;
    if (max.usable) {
      report(row_logits, max.value, row, token_ids[row], result.num_top, scratch, result);
    }
  });
}

}  // namespace chairlift
