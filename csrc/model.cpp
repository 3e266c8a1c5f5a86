#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace chairlift {
namespace {

constexpr int kMaxBatchedTokens = 1 << 20;

ModelShape checked(ModelShape shape, int max_tokens) {
  shape.check();
  if (max_tokens < 1 || max_tokens > kMaxBatchedTokens) {
    throw std::invalid_argument("max_num_batched_tokens must be between 1 and " +
                                std::to_string(kMaxBatchedTokens) + ", got " +
                                std::to_string(max_tokens));
  }
  return shape;
}

AttentionShape attention_shape(const ModelShape& shape, ElementType type) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  return {shape.num_heads, shape.num_kv_heads, shape.head_dim, type, scale};
}

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

// `index` < 0: the field is a single number. Texts are made on failure only: this runs per token.
void check_range(const char* field, int64_t index, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  const std::string name =
      index < 0 ? field : std::string(field) + "[" + std::to_string(index) + "]";
  fail(name + " must be between " + std::to_string(least) + " and " + std::to_string(most) +
       ", got " + std::to_string(value));
}

void check_equal(const char* field, int64_t index, int64_t value, int64_t expected, int seq) {
  if (value == expected) return;
  fail(std::string(field) + "[" + std::to_string(index) + "] must be " +
       std::to_string(expected) + " to fit seq_lens and block_tables of sequence " +
       std::to_string(seq) + ", got " + std::to_string(value));
}

}  // namespace

Model::Model(ModelShape shape, ElementType type, Quantization quantization, KvType kv_type,
             int num_threads, int max_num_batched_tokens, const StoredTypes& kept_types)
    : shape_(checked(std::move(shape), max_num_batched_tokens)),
      type_(type),
      kv_type_(kv_type),
      max_tokens_(max_num_batched_tokens),
      attention_shape_(attention_shape(shape_, type)),
      isa_(current_isa()),
      gemm_(gemm_kernels(isa_)),
      row_(row_kernels(isa_)),
      quantise_(quantise_kernels(isa_)),
      attention_(attention_kernels(isa_)),
      team_(num_threads),
      work_(num_threads),
      weights_(shape_, type, quantization, kept_types),
      rope_(shape_.rope_inv_freq, shape_.rope_attention_factor),
      plan_(attention_shape_, shape_.num_layers),
      residual_(max_tokens_, shape_.hidden_size, ElementType::float32),
      normed_(max_tokens_, shape_.hidden_size, type),
      qkv_(max_tokens_, shape_.qkv_size(), ElementType::float32),
      attended_(max_tokens_, shape_.q_size(), type),
      activated_(max_tokens_, shape_.intermediate_size,
                 quantization == Quantization::int8 ? ElementType::bfloat16 : type) {
  const int widest =
      std::max({shape_.hidden_size, shape_.intermediate_size, shape_.q_size()});
  if (quantization == Quantization::int8) quantised_.emplace(max_tokens_, widest);
  const int64_t padded = round_up(widest, kRotationBlock);
  const int64_t scratch_bytes = static_cast<int64_t>(gemm_scratch_bytes(padded));
  gemm_scratch_bytes_ = static_cast<size_t>(round_up(scratch_bytes, 64));
  gemm_scratch_ = HugeBuffer(gemm_scratch_bytes_ * static_cast<size_t>(num_threads));
  for (int tid = 0; tid < num_threads; tid++) {
    attention_scratch_.push_back(std::make_unique_for_overwrite<AttentionScratch>());
  }
}

size_t Model::buffer_bytes() const {
  return residual_.bytes() + normed_.bytes() + qkv_.bytes() + attended_.bytes() +
         activated_.bytes() + gemm_scratch_.bytes() +
         (quantised_ ? quantised_->bytes() : 0) +
         attention_scratch_.size() * sizeof(AttentionScratch);
}

void Model::allocate_kv(int num_blocks, int block_size) {
  const KvShape kv_shape = {shape_.num_layers, shape_.num_kv_heads, shape_.head_dim, kv_type_};
  swap_.reset();
  kv_.reset();
  kv_ = std::make_unique<KvCache>(kv_shape, num_blocks, block_size);
}

size_t Model::kv_bytes_per_block(int block_size) const {
  const KvShape kv_shape = {shape_.num_layers, shape_.num_kv_heads, shape_.head_dim, kv_type_};
  return KvLayout(kv_shape, block_size).block_bytes_all_layers();
}

void Model::allocate_swap(int num_slots, const std::string& path) {
  if (!kv_) fail("the KV cache is not allocated: call allocate_kv before allocate_swap");
  swap_.reset();
  swap_ = std::make_unique<SwapSpace>(*kv_, num_slots, path);
}

const SwapSpace& Model::swap_space() const {
  if (!swap_) fail("there is no swap space: call allocate_swap first");
  return *swap_;
}

void Model::swap_out(std::span<const int32_t> blocks, std::span<const int32_t> slots) {
  swap_space().copy_out(team_, blocks, slots);
}

void Model::swap_in(std::span<const int32_t> slots, std::span<const int32_t> blocks) {
  swap_space().copy_in(team_, slots, blocks);
}

void Model::check_batch(const int32_t* token_ids, const FlatBatch& batch) const {
  if (!kv_) fail("the KV cache is not allocated: call allocate_kv first");
  check_range("number of tokens (max_num_batched_tokens)", -1, batch.num_tokens, 1, max_tokens_);
  check_range("number of sequences", -1, batch.num_seqs, 1, batch.num_tokens);
  for (int t = 0; t < batch.num_tokens; t++) {
    check_range("token_ids", t, token_ids[t], 0, shape_.vocab_size - 1);
  }
  check_range("query_start_loc", 0, batch.query_start_loc[0], 0, 0);
  for (int s = 0; s < batch.num_seqs; s++) {
    // The last one ends with the batch; each before it leaves a token for those behind it.
    const int64_t most = batch.num_tokens - (batch.num_seqs - 1 - s);
    const int64_t least = s + 1 < batch.num_seqs ? int64_t(batch.query_start_loc[s]) + 1 : most;
    check_range("query_start_loc", s + 1, batch.query_start_loc[s + 1], least, most);
    check_sequence(batch, s);
  }
}

void Model::check_sequence(const FlatBatch& batch, int seq) const {
  const int begin = batch.query_start_loc[seq], end = batch.query_start_loc[seq + 1];
  const int64_t block_size = kv_->layout().block_size;
  const int64_t length = batch.seq_lens[seq];
  check_range("seq_lens", seq, length, end - begin, block_size * batch.block_table_stride);
  const int32_t* table = batch.block_tables + int64_t(seq) * batch.block_table_stride;
  for (int64_t b = 0; b * block_size < length; b++) {
    check_range("block_tables of a sequence", b, table[b], 0, kv_->num_blocks() - 1);
  }
  for (int t = begin; t < end; t++) {
    const int64_t position = length - end + t;
    check_equal("positions", t, batch.positions[t], position, seq);
    const int64_t slot = table[position / block_size] * block_size + position % block_size;
    check_equal("slot_mapping", t, batch.slot_mapping[t], slot, seq);
  }
}

}  // namespace chairlift
