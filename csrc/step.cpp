// One forward step: what every member of the team does between two looks at the scheduler.
//
// All members run the same sequence of phases, each on its share, and meet at a barrier where the
// next phase reads what the others wrote.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "model.h"

namespace chairlift {
namespace {

// Asks for a row of activations. Products leave parts of it in the other cores' caches, and the
// processor's prefetchers start anew on each page.
void fetch_row(const std::byte* row, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

}  // namespace

// A matrix to multiply with; `next` is the one after it, whose weights are fetched ahead.
struct Model::Linear {
  int num_rows;
  const ActivationRows& input;
  const PackedMatrix& weights;
  Epilogue epilogue;
  const float* bias;
  std::byte* out;
  int64_t out_stride;
  int out_columns;
  const PackedMatrix* next;
};

void Model::forward(const int32_t* token_ids, const FlatBatch& batch) {
  check_batch(token_ids, batch);
  rope_.reserve(*std::max_element(batch.seq_lens, batch.seq_lens + batch.num_seqs));
  plan_.build(batch);
  num_rows_ = batch.num_tokens;
  team_.run([&](int tid) { run_step(tid, token_ids, batch); });
}

void Model::run_step(int tid, const int32_t* token_ids, const FlatBatch& batch) {
  const int rows = batch.num_tokens;
  if (tid == 0) timers_.start();
  embed(tid, token_ids, rows);
  meet(tid, Phase::embed);
  for (int i = 0; i < shape_.num_layers; i++) {
    const LayerWeights& layer = weights_.layer(i);
    const PackedMatrix* after =
        i + 1 < shape_.num_layers ? &weights_.layer(i + 1).qkv : &weights_.head();
    normalise(tid, rows, layer.input_norm);
    meet(tid, Phase::norm);
    multiply(tid, {rows, normed_, layer.qkv, Epilogue::store, data_or_null(layer.qkv_bias),
                   qkv_.row(0), qkv_.stride(), layer.qkv.out_features, &layer.o});
    meet(tid, Phase::qkv);
    run_attention(tid, i, batch);
    meet(tid, Phase::attention);
    quantise(tid, rows, attended_, shape_.q_size());
    multiply(tid, {rows, attended_, layer.o, Epilogue::add, data_or_null(layer.o_bias),
                   residual_.row(0), residual_.stride(), shape_.hidden_size, &layer.gate_up});
    meet(tid, Phase::o);
    normalise(tid, rows, layer.post_attention_norm);
    meet(tid, Phase::norm);
    multiply(tid, {rows, normed_, layer.gate_up, Epilogue::silu_mul, nullptr, activated_.row(0),
                   activated_.stride(), shape_.intermediate_size, &layer.down});
    meet(tid, Phase::gate_up);
    quantise(tid, rows, activated_, shape_.intermediate_size);
    multiply(tid, {rows, activated_, layer.down, Epilogue::add, nullptr, residual_.row(0),
                   residual_.stride(), shape_.hidden_size, after});
    meet(tid, Phase::down);
  }
}

void Model::compute_logits(std::span<const int32_t> rows, float* out) {
  for (size_t i = 0; i < rows.size(); i++) {
    if (rows[i] < 0 || rows[i] >= num_rows_) {
      throw std::invalid_argument("rows[" + std::to_string(i) + "] must be between 0 and " +
                                  std::to_string(num_rows_ - 1) +
                                  " (rows of the last batch), got " + std::to_string(rows[i]));
    }
  }
  const int vocab = shape_.vocab_size;
  const size_t most = static_cast<size_t>(max_tokens_);
  for (size_t first = 0; first < rows.size(); first += most) {
    const std::span<const int32_t> part = rows.subspan(first, std::min(most, rows.size() - first));
    const int num_rows = static_cast<int>(part.size());
    std::byte* part_out = reinterpret_cast<std::byte*>(out + first * static_cast<size_t>(vocab));
    team_.run([&](int tid) {
      if (tid == 0) timers_.start();
      const Share share = share_of(num_rows, tid, team_.size());
      for (int64_t i = share.begin; i < share.end; i++) {
        norm_row(tid, residual_.float_row(part[static_cast<size_t>(i)]), weights_.final_norm(), i);
      }
      meet(tid, Phase::norm);
      multiply(tid, {num_rows, normed_, weights_.head(), Epilogue::store, nullptr, part_out, vocab,
                     vocab, &weights_.layer(0).qkv});
      if (tid == 0) timers_.lap(Phase::head);
    });
  }
}

void Model::embed(int tid, const int32_t* token_ids, int num_tokens) {
  const Share share = share_of(num_tokens, tid, team_.size());
  for (int64_t t = share.begin; t < share.end; t++) {
    float* row = residual_.float_row(t);
    unpack_row(weights_.embedding(), token_ids[t], row);
    std::fill(row + shape_.hidden_size, row + round_up(shape_.hidden_size, kPanelFeatures), 0.0f);
  }
}

// Into row `out_row` of what the next product reads.
void Model::norm_row(int tid, const float* x, const std::vector<float>& weight, int64_t out_row) {
  const RmsNormRow row = {x, weight.data(), static_cast<int64_t>(weight.size()),
                          shape_.hidden_size, shape_.rms_norm_eps};
  if (quantised_) {
    float* normed = reinterpret_cast<float*>(member_scratch(tid));
    row_.rms_norm_float32(row, normed);
    quantised_->scales()[out_row] = quantise_.float32(
        normed, {shape_.hidden_size, normed, quantised_->row(out_row), gemm_.int8_input_flip});
  } else if (type_ == ElementType::float32) {
    row_.rms_norm_float32(row, normed_.float_row(out_row));
  } else {
    row_.rms_norm_bfloat16(row, reinterpret_cast<uint16_t*>(normed_.row(out_row)));
  }
}

void Model::quantise(int tid, int num_rows, const ActivationRows& rows, int columns) {
  if (!quantised_) return;
  float* rotated = reinterpret_cast<float*>(member_scratch(tid));
  const Share share = share_of(num_rows, tid, team_.size());
  for (int64_t i = share.begin; i < share.end; i++) {
    const QuantisedRow out = {columns, rotated, quantised_->row(i), gemm_.int8_input_flip};
    quantised_->scales()[i] =
        rows.type() == ElementType::float32
            ? quantise_.float32(rows.float_row(i), out)
            : quantise_.bfloat16(reinterpret_cast<const uint16_t*>(rows.row(i)), out);
  }
  meet(tid, Phase::quantise);
}

void Model::normalise(int tid, int num_rows, const std::vector<float>& weight) {
  const Share share = share_of(num_rows, tid, team_.size());
  for (int64_t i = share.begin; i < share.end; i++) {
    fetch_row(residual_.row(i + 1), weight.size() * sizeof(float));
    norm_row(tid, residual_.float_row(i), weight, i);
  }
}

void Model::run_attention(int tid, int layer, const FlatBatch& batch) {
  const LayerWeights& weights = weights_.layer(layer);
  const AttentionCall call = {
      .shape = attention_shape_,
      .kv_layout = kv_->layout(),
      .kv = kv_->layer(layer),
      .batch = &batch,
      .rope_cos = rope_.cos(),
      .rope_sin = rope_.sin(),
      .plan = &plan_,
      .layer = layer,
      .sliding_window = shape_.sliding_windows[static_cast<size_t>(layer)],
      .qkv = qkv_.float_row(0),
      .qkv_stride = qkv_.stride(),
      .q_norm = data_or_null(weights.q_norm),
      .k_norm = data_or_null(weights.k_norm),
      .norm_eps = shape_.rms_norm_eps,
      .out = attended_.row(0),
      .out_stride = attended_.stride(),
  };
  if (!plan_.fuses_rope()) {
    const Share share = share_of(batch.num_tokens, tid, team_.size());
    attention_.rope_and_store(call, static_cast<int>(share.begin), static_cast<int>(share.end));
    meet(tid, Phase::rope);
  }
  attention_.attend(call, *attention_scratch_[static_cast<size_t>(tid)]);
}

const std::byte* Model::first_weights(int tid, const PackedMatrix& matrix) const {
  return matrix.panel(static_cast<int>(share_of(matrix.num_panels(), tid, team_.size()).begin));
}

void Model::multiply(int tid, const Linear& linear) {
  const GemmCall call = {
      .input = quantised_ ? reinterpret_cast<const std::byte*>(quantised_->row(0))
                          : linear.input.row(0),
      .input_stride = quantised_ ? quantised_->stride() : linear.input.stride(),
      .input_scales = quantised_ ? quantised_->scales() : nullptr,
      .num_rows = linear.num_rows,
      .weights = &linear.weights,
      .work = {&work_, tid},
      .epilogue = linear.epilogue,
      .bias = linear.bias,
      .out = linear.out,
      .out_stride = linear.out_stride,
      .out_columns = linear.out_columns,
      .next_weights = first_weights(tid, *linear.next),
      .scratch = member_scratch(tid),
  };
  gemm_.of(linear.weights.format)(call);
}

void Model::meet(int tid, Phase phase) {
  if (tid == 0) timers_.lap(phase);
  team_.barrier();
  if (tid == 0) timers_.lap(Phase::barrier);
}

}  // namespace chairlift
