// A whole decoder model on the CPU: packed weights, activation buffers, KV cache, and the step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "activation_rows.h"
#include "attention.h"
#include "gemm.h"
#include "huge_buffer.h"
#include "model_weights.h"
#include "phase_timers.h"
#include "quantised_rows.h"
#include "row_kernels.h"
#include "shared_work.h"
#include "swap_space.h"
#include "thread_team.h"

namespace chairlift {

class Model {
 public:
  // Throws std::invalid_argument naming the value that cannot be. Uses current_isa().
  Model(ModelShape shape, ElementType type, Quantization quantization, KvType kv_type,
        int num_threads, int max_num_batched_tokens, const StoredTypes& kept_types = {});

  void set_weight(const WeightSource& source) { weights_.set(source, team_); }
  std::vector<std::span<std::byte>> weight_parts() { return weights_.parts(); }

  // (Re)places the KV cache; what the old one held is gone, and so is its swap space.
  void allocate_kv(int num_blocks, int block_size);
  size_t kv_bytes_per_block(int block_size) const;

  // (Re)places the swap space of the KV cache; see SwapSpace. Throws std::invalid_argument as long
  // as there is no cache.
  void allocate_swap(int num_slots, const std::string& path);
  // Copies blocks into slots, and back. Throw std::invalid_argument as SwapSpace does, and as long
  // as there is no swap space.
  void swap_out(std::span<const int32_t> blocks, std::span<const int32_t> slots);
  void swap_in(std::span<const int32_t> slots, std::span<const int32_t> blocks);

  // Computes all layers for the batch, token_ids [num_tokens], writes its K and V into the cache,
  // and leaves one row of hidden states per token for compute_logits. Throws
  // std::invalid_argument, and changes nothing, if the batch does not fit together.
  void forward(const int32_t* token_ids, const FlatBatch& batch);

  // Final norm and output head of some rows of the last batch into out [rows.size(), vocab_size].
  // Throws std::invalid_argument for a row the last batch did not have.
  void compute_logits(std::span<const int32_t> rows, float* out);

  const ModelShape& shape() const { return shape_; }
  size_t weight_bytes() const { return weights_.bytes(); }
  // What a step of max_num_batched_tokens tokens needs besides weights and KV cache.
  size_t buffer_bytes() const;
  int max_num_batched_tokens() const { return max_tokens_; }
  Isa isa() const { return isa_; }
  ThreadTeam& team() { return team_; }
  PhaseTimers& timers() { return timers_; }

 private:
  struct Linear;

  const SwapSpace& swap_space() const;
  void check_batch(const int32_t* token_ids, const FlatBatch& batch) const;
  void check_sequence(const FlatBatch& batch, int seq) const;

  // The step, run by every member; see step.cpp.
  void run_step(int tid, const int32_t* token_ids, const FlatBatch& batch);
  void run_attention(int tid, int layer, const FlatBatch& batch);
  void embed(int tid, const int32_t* token_ids, int num_tokens);
  void normalise(int tid, int num_rows, const std::vector<float>& weight);
  void norm_row(int tid, const float* x, const std::vector<float>& weight, int64_t out_row);
  void quantise(int tid, int num_rows, const ActivationRows& rows, int columns);
  void multiply(int tid, const Linear& linear);
  const std::byte* first_weights(int tid, const PackedMatrix& matrix) const;
  void meet(int tid, Phase phase);
  std::byte* member_scratch(int tid) const {
    return gemm_scratch_.data() + gemm_scratch_bytes_ * static_cast<size_t>(tid);
  }

  const ModelShape shape_;
  const ElementType type_;
  const KvType kv_type_;
  const int max_tokens_;
  const AttentionShape attention_shape_;
  const Isa isa_;
  const GemmKernels& gemm_;
  const RowKernels& row_;
  const QuantiseKernels& quantise_;
  const AttentionKernels& attention_;
  ThreadTeam team_;
  SharedWork work_;
  ModelWeights weights_;
  RopeTable rope_;
  AttentionPlan plan_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<SwapSpace> swap_;
  PhaseTimers timers_;

  ActivationRows residual_;   // float32 [tokens, hidden]: the stream that layers add to
  ActivationRows normed_;     // [tokens, hidden]
  ActivationRows qkv_;        // float32 [tokens, q + 2 kv]
  ActivationRows attended_;   // [tokens, q]
  ActivationRows activated_;  // [tokens, intermediate]
  // With int8 weights, what the next product reads in place of `normed_` and the two above.
  std::optional<QuantisedRows> quantised_;
  size_t gemm_scratch_bytes_;
  HugeBuffer gemm_scratch_;   // one part per member
  std::vector<std::unique_ptr<AttentionScratch>> attention_scratch_;  // one per member
  int num_rows_ = 0;          // of the last batch
};

}  // namespace chairlift
