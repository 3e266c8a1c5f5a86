// The weights of one decoder model, packed, and how tensors of a model file find their places.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "huge_buffer.h"
#include "packed_matrix.h"

namespace chairlift {

// The numbers of chairlift.model_spec.ModelSpec.
struct ModelShape {
  int vocab_size;
  int hidden_size;
  int intermediate_size;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  float rms_norm_eps;
  std::vector<double> rope_inv_freq;  // [head_dim / 2] radians per position
  double rope_attention_factor;
  std::vector<int> sliding_windows;   // [num_layers], 0: all tokens
  bool attention_bias;
  bool attention_output_bias;
  bool qk_norm;
  bool tie_word_embeddings;

  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  int qkv_size() const { return q_size() + 2 * kv_size(); }
  // Throws std::invalid_argument naming the field that cannot be.
  void check() const;
};

// A tensor as the model file has it; `name` as in chairlift.model_spec.WeightTensor.
struct WeightSource {
  std::string_view name;
  TensorType type;
  std::span<const int64_t> shape;
  std::span<const uint8_t> data;
  int interleaved_heads;
};

// What matrices are turned into while they are packed; names as in chairlift.config.
enum class Quantization { none, int8 };

// Throws std::invalid_argument naming the choices.
Quantization parse_quantization(std::string_view name);

struct LayerWeights {
  PackedMatrix qkv, o, gate_up, down;
  // Vectors are padded with zeros to the kernels' width; absent ones are empty.
  std::vector<float> input_norm, post_attention_norm;
  std::vector<float> qkv_bias, o_bias;
  std::vector<float> q_norm, k_norm;
};

// Types of tensors in the model file, by name.
using StoredTypes = std::map<std::string, TensorType, std::less<>>;

inline const float* data_or_null(const std::vector<float>& v) {
  return v.empty() ? nullptr : v.data();
}

class ModelWeights {
 public:
  // Reserves zeroed memory for everything. Matrices whose tensors `kept_types` lists keep the
  // file's format, others are quantised or have the plain format of `type`. Throws
  // std::invalid_argument for a name that is not a matrix of this model's, and for types that
  // cannot be kept, or not in one matrix.
  ModelWeights(const ModelShape& shape, ElementType type, Quantization quantization,
               const StoredTypes& kept_types = {});

  // Dequantises, packs and stores one tensor. Throws std::invalid_argument naming the tensor when
  // it is not one of this model's or has another shape or size; nothing is stored then.
  void set(const WeightSource& source, ThreadTeam& team);

  const LayerWeights& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  const PackedMatrix& embedding() const { return embedding_; }
  const PackedMatrix& head() const { return tied_ ? embedding_ : head_; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  size_t bytes() const { return bytes_; }
  // All memory that set() writes, in an order fixed by shape and type: what a copy of it on disk
  // holds. Whoever fills these parts has loaded the model.
  std::vector<std::span<std::byte>> parts();

 private:
  // Where a tensor goes: rows of a matrix, or (matrix == nullptr) part of a vector.
  struct Place {
    std::vector<int64_t> shape;
    PackedMatrix* matrix = nullptr;
    FeatureRange range;
    std::vector<float>* vector = nullptr;
  };
  std::vector<PackedMatrix*> matrices();
  void keep_formats(const StoredTypes& kept_types);
  Place find(std::string_view name);
  Place find_in_layer(LayerWeights& layer, std::string_view part);

  const ModelShape shape_;
  const bool tied_;
  std::vector<LayerWeights> layers_;
  PackedMatrix embedding_, head_;
  std::vector<float> final_norm_;
  size_t bytes_ = 0;
  HugeBuffer memory_;
};

}  // namespace chairlift
