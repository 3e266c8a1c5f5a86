#include "sampler_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace chairlift {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kAnyId = std::numeric_limits<int32_t>::max();
constexpr int32_t kNoId = -1;

// A bracket of so few candidates is sorted and walked instead of being narrowed further.
constexpr int32_t kWalkLength = 96;

using Thresholds = std::array<float, kLadderSteps>;

// The last candidate of a prefix: all above `logit` are in it, and those equal to it up to
// `last_id`.
struct Cut {
  float logit;
  int32_t last_id;

  KeepRule rule() const { return {logit, last_id, kInfinity}; }
};

Candidates keep(const SamplerKernels& kernels, const Candidates& from, const KeepRule& rule,
                const CandidateBuffer& to) {
  const int32_t n = kernels.keep(from, rule, to);
  return {to.logits, to.ids, from.weights == nullptr ? nullptr : to.weights, n};
}

// Where the cuts of a language model's top_p lie, in units of the temperature. The last one separates
// everything above -inf.
Thresholds coarse_thresholds(float max, float unit) {
  constexpr std::array<float, kLadderSteps - 1> kDistances = {1.5f, 3.0f, 4.5f, 6.0f,
                                                              8.0f, 11.0f, 16.0f};
  Thresholds thresholds;
  for (size_t i = 0; i < kDistances.size(); ++i) thresholds[i] = max - unit * kDistances[i];
  thresholds.back() = -kInfinity;
  return thresholds;
}

// Evenly spaced from min to max, so that at least one separates the two. With a min of -inf all are
// -inf, which separates it from everything else.
Thresholds even_thresholds(ValueRange range) {
  Thresholds thresholds;
  for (int i = 0; i < kLadderSteps; ++i) {
    const double part = static_cast<double>(kLadderSteps - i) / (kLadderSteps + 1);
    thresholds[i] = static_cast<float>(range.min * (1.0 - part) + range.max * part);
    thresholds[i] = std::clamp(thresholds[i], range.min, range.max);
  }
  return thresholds;
}

// Follows the order of candidates until their weight, added to `reached`, is at least `target`.
Cut walk(const Candidates& bracket, bool sorted, double reached, double target) {
  std::array<int32_t, kWalkLength> order;
  if (!sorted) {
    for (int32_t i = 0; i < bracket.n; ++i) order[i] = i;
    std::sort(order.begin(), order.begin() + bracket.n, [&](int32_t a, int32_t b) {
      if (bracket.logits[a] != bracket.logits[b]) return bracket.logits[a] > bracket.logits[b];
      return bracket.ids[a] < bracket.ids[b];
    });
  }
  int32_t last = 0;
  for (int32_t i = 0; i < bracket.n; ++i) {
    last = sorted ? i : order[i];
    reached += bracket.weights == nullptr ? 1.0 : bracket.weights[last];
    if (reached >= target) break;
  }
  return {bracket.logits[last], bracket.ids[last]};
}

// The end of the shortest prefix whose weight (without weights: number) is at least `target`.
//
// Narrows a bracket of logits around the cut: each pass measures what lies above eight thresholds,
// and only candidates between two of them go on.
Cut find_cut(const SamplerKernels& kernels, Candidates bracket, float max, float unit,
             double target, SamplerScratch& scratch) {
  double reached = 0.0;  // by the candidates above the bracket
  if (bracket.n <= kWalkLength) {
    bracket = keep(kernels, bracket, {-kInfinity, kAnyId, kInfinity}, scratch.bracket());
    return walk(bracket, false, reached, target);
  }
  Thresholds thresholds =
      bracket.weights != nullptr
          ? coarse_thresholds(max, unit)
          : even_thresholds(kernels.scan_range(bracket.logits, bracket.n));
  while (true) {
    double above[kLadderSteps];
    kernels.ladder(bracket, thresholds.data(), above);
    int step = 0;
    while (step < kLadderSteps && reached + above[step] < target) ++step;
    const bool is_last = step == kLadderSteps;
    const KeepRule between = {is_last ? -kInfinity : thresholds[step], is_last ? kAnyId : kNoId,
                              step == 0 ? kInfinity : thresholds[step - 1]};
    if (step > 0) reached += above[step - 1];
    bracket = keep(kernels, bracket, between, scratch.bracket());
    // The sums of a prefix differ by rounding from one pass to the next: the rest can be empty.
    if (bracket.n == 0) return {between.max_logit, kAnyId};
    if (bracket.n <= kWalkLength) return walk(bracket, false, reached, target);
    const ValueRange range = kernels.scan_range(bracket.logits, bracket.n);
    if (range.min == range.max) return walk(bracket, true, reached, target);
    thresholds = even_thresholds(range);
  }
}

double total_of(const double* block_sums, int32_t n) {
  double total = 0.0;
  for (int32_t block = 0; block < num_sum_blocks(n); ++block) total += block_sums[block];
  return total;
}

// First index whose running sum of weights exceeds `target`, or the last one with a weight, should
// rounding have put the target at the end.
int32_t find_weight(const float* weights, const double* block_sums, int32_t n, double target) {
  const int32_t num_blocks = num_sum_blocks(n);
  int32_t block = 0;
  double before = 0.0;
  int32_t last_block = 0;
  double before_last_block = 0.0;
  for (; block < num_blocks; ++block) {
    if (block_sums[block] > 0.0) {
      last_block = block;
      before_last_block = before;
    }
    if (before + block_sums[block] > target) break;
    before += block_sums[block];
  }
  double sum = before_last_block;
  int32_t last = last_block * kSumBlock;
  for (int32_t i = last; i < std::min(n, (last_block + 1) * kSumBlock); ++i) {
    if (weights[i] > 0.0f) last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return last;
}

template <class T>
std::unique_ptr<T[]> uninitialised(int32_t n) {
  return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(n));
}

}  // namespace

// Pages of arrays that no request needs are never touched, and so never take memory.
SamplerScratch::SamplerScratch(int32_t vocab_size)
    : modified_(uninitialised<float>(vocab_size)),
      kept_logits_(uninitialised<float>(vocab_size + kOutputPadding)),
      kept_weights_(uninitialised<float>(vocab_size + kOutputPadding)),
      bracket_logits_(uninitialised<float>(vocab_size + kOutputPadding)),
      bracket_weights_(uninitialised<float>(vocab_size + kOutputPadding)),
      kept_ids_(uninitialised<int32_t>(vocab_size + kOutputPadding)),
      bracket_ids_(uninitialised<int32_t>(vocab_size + kOutputPadding)),
      block_sums_(uninitialised<double>(num_sum_blocks(vocab_size))) {}

int32_t pick_greedy(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                    float max) {
  return kernels.find_equal(logits, 0, vocab_size, max);
}

int32_t draw_token(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                   float max, const DrawRule& rule, double uniform, SamplerScratch& scratch) {
  Candidates kept{logits, nullptr, nullptr, vocab_size};
  if (rule.min_p > 0.0f) {
    // weight >= min_p * largest weight, said of logits.
    const float limit = max + rule.temperature * std::log(rule.min_p);
    kept = keep(kernels, kept, {std::min(limit, max), kAnyId, kInfinity}, scratch.kept());
  }
  if (rule.top_k > 0 && rule.top_k < kept.n) {
    const Cut cut = find_cut(kernels, kept, max, 1.0f, rule.top_k, scratch);
    kept = keep(kernels, kept, cut.rule(), scratch.kept());
  }
  double* block_sums = scratch.block_sums();
  kernels.exponentials(kept.logits, kept.n, max, 1.0f / rule.temperature, scratch.weights(),
                       block_sums);
  double total = total_of(block_sums, kept.n);
  if (rule.top_p < 1.0) {
    kept.weights = scratch.weights();
    const Cut cut =
        find_cut(kernels, kept, max, rule.temperature, rule.top_p * total, scratch);
    kept = keep(kernels, kept, cut.rule(), scratch.kept());
    kernels.sum_blocks(kept.weights, kept.n, block_sums);
    total = total_of(block_sums, kept.n);
  }
  const int32_t index = find_weight(scratch.weights(), block_sums, kept.n, uniform * total);
  return kept.ids == nullptr ? index : kept.ids[index];
}

double log_sum_exp(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                   float max, SamplerScratch& scratch) {
  kernels.exponentials(logits, vocab_size, max, 1.0f, nullptr, scratch.block_sums());
  return std::log(total_of(scratch.block_sums(), vocab_size));
}

void select_top(const SamplerKernels& kernels, const float* logits, int32_t vocab_size, int32_t k,
                int32_t* ids) {
  if (k == 0) return;
  // In the order of ids a later candidate replaces an earlier one only if it is larger.
  int32_t count = 0;
  int32_t next = 0;
  const auto insert = [&](int32_t id) {
    int32_t place = count < k ? count++ : k - 1;
    for (; place > 0 && logits[ids[place - 1]] < logits[id]; --place) ids[place] = ids[place - 1];
    ids[place] = id;
  };
  for (; next < k; ++next) insert(next);
  while ((next = kernels.find_above(logits, next, vocab_size, logits[ids[k - 1]])) < vocab_size) {
    insert(next++);
  }
}

int32_t rank_of(const SamplerKernels& kernels, const float* logits, int32_t vocab_size,
                int32_t token_id) {
  return 1 + kernels.count_above(logits, vocab_size, logits[token_id]) +
         kernels.count_equal(logits, token_id, logits[token_id]);
}

}  // namespace chairlift
