#include "attention.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace chairlift {
namespace {

// New tokens per item: as many as fill the rows of its tiles with the heads of one group.
int tokens_per_item(const AttentionShape& shape) { return std::max(1, kItemRows / shape.group()); }

[[noreturn]] void refuse(const std::string& what, int64_t value, const std::string& bound) {
  throw std::invalid_argument(what + " must be " + bound + ", got " + std::to_string(value));
}

std::string element(const char* name, int64_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

// One sequence's lengths and blocks.
void check_sequence(const FlatBatch& batch, int seq, int block_size, int num_blocks) {
  const int begin = batch.query_start_loc[seq], end = batch.query_start_loc[seq + 1];
  if (end <= begin || end > batch.num_tokens) {
    refuse(element("query_start_loc", seq + 1), end,
           "above " + std::to_string(begin) + " and at most the number of tokens, " +
               std::to_string(batch.num_tokens));
  }
  const int64_t length = batch.seq_lens[seq];
  const int64_t capacity = int64_t(batch.block_table_stride) * block_size;
  if (length < end - begin || length > capacity) {
    refuse(element("seq_lens", seq), length,
           "between its new tokens, " + std::to_string(end - begin) +
               ", and what its block table can hold, " + std::to_string(capacity));
  }
  const int32_t* blocks = batch.block_tables + int64_t(seq) * batch.block_table_stride;
  const int64_t used = (length + block_size - 1) / block_size;
  for (int64_t i = 0; i < used; i++) {
    if (blocks[i] < 0 || blocks[i] >= num_blocks) {
      refuse(element("block_tables", seq) + "[" + std::to_string(i) + "]", blocks[i],
             "between 0 and " + std::to_string(num_blocks - 1));
    }
  }
}

// One sequence's positions and slots, which follow from its length and blocks.
void check_tokens(const FlatBatch& batch, int seq, int block_size) {
  const int begin = batch.query_start_loc[seq], end = batch.query_start_loc[seq + 1];
  const int32_t* blocks = batch.block_tables + int64_t(seq) * batch.block_table_stride;
  for (int token = begin; token < end; token++) {
    const int position = batch.seq_lens[seq] - (end - token);
    if (batch.positions[token] != position) {
      refuse(element("positions", token), batch.positions[token],
             std::to_string(position) + " as seq_lens implies");
    }
    const int64_t block = blocks[position / block_size];
    const int64_t slot = block * block_size + position % block_size;
    if (batch.slot_mapping[token] != slot) {
      refuse(element("slot_mapping", token), batch.slot_mapping[token],
             std::to_string(slot) + " as block_tables implies");
    }
  }
}

}  // namespace

void check_flat_batch(const FlatBatch& batch, int block_size, int num_blocks) {
  if (batch.query_start_loc[0] != 0) refuse("query_start_loc[0]", batch.query_start_loc[0], "0");
  for (int seq = 0; seq < batch.num_seqs; seq++) {
    check_sequence(batch, seq, block_size, num_blocks);
    check_tokens(batch, seq, block_size);
  }
  const int total = batch.query_start_loc[batch.num_seqs];
  if (total != batch.num_tokens) {
    refuse(element("query_start_loc", batch.num_seqs), total,
           "the number of tokens, " + std::to_string(batch.num_tokens));
  }
}

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

const AttentionItem* AttentionPlan::claim(int layer) {
  const int item = claimed_[size_t(layer)].fetch_add(1, std::memory_order_relaxed);
  return size_t(item) < items_.size() ? &items_[size_t(item)] : nullptr;
}

bool AttentionPlan::fuses_rope() const { return fuses_rope_; }

}  // namespace chairlift
