#include "attention.h"

#include <algorithm>
#include <cmath>

namespace chairlift {
namespace {

// New tokens per item: as many as fill the rows of a tile with the heads of one group.
int tokens_per_item(const AttentionShape& shape) { return std::max(1, kTileRows / shape.group()); }

}  // namespace

RopeTable::RopeTable(std::span<const double> inv_freq, double attention_factor)
    : inv_freq_(inv_freq.begin(), inv_freq.end()),
      attention_factor_(attention_factor),
      half_(inv_freq.size()) {}

void RopeTable::reserve(int num_positions) {
  if (num_positions <= num_positions_) return;
  constexpr int kFirst = 1024;  // then doubled: a long context pays for its own tables
  const int grown = std::max({num_positions, 2 * num_positions_, kFirst});
  cos_.resize(size_t(grown) * half_);
  sin_.resize(size_t(grown) * half_);
  for (int position = num_positions_; position < grown; position++) {
    for (size_t i = 0; i < half_; i++) {
      const double angle = double(position) * inv_freq_[i];
      cos_[size_t(position) * half_ + i] = float(std::cos(angle) * attention_factor_);
      sin_[size_t(position) * half_ + i] = float(std::sin(angle) * attention_factor_);
    }
  }
  num_positions_ = grown;
}

AttentionPlan::AttentionPlan(const AttentionShape& shape, int num_layers)
    : shape_(shape), num_layers_(num_layers), claimed_(new std::atomic<int>[size_t(num_layers)]) {}

void AttentionPlan::build(const FlatBatch& batch) {
  const int step = tokens_per_item(shape_);
  items_.clear();
  fuses_rope_ = true;
  for (int seq = 0; seq < batch.num_seqs; seq++) {
    const int begin = batch.query_start_loc[seq], end = batch.query_start_loc[seq + 1];
    if (end - begin > step) fuses_rope_ = false;
    // The last tokens see most: longest items first, so that no thread ends with a long one.
    for (int first = begin + (end - begin - 1) / step * step; first >= begin; first -= step) {
      for (int head = 0; head < shape_.num_kv_heads; head++) {
        items_.push_back({seq, head, first, std::min(step, end - first)});
      }
    }
  }
  const auto cost = [&](const AttentionItem& item) {
    return int64_t(batch.positions[item.first_token] + 1) * item.num_tokens;
  };
  if (!fuses_rope_) {
    std::stable_sort(items_.begin(), items_.end(),
                     [&](const auto& a, const auto& b) { return cost(a) > cost(b); });
  }
  for (int layer = 0; layer < num_layers_; layer++) claimed_[size_t(layer)] = 0;
}

}  // namespace chairlift
