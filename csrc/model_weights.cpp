#include "model_weights.h"

#include <charconv>
#include <stdexcept>

#include "file_blocks.h"

namespace chairlift {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

[[noreturn]] void fail(std::string_view tensor, const std::string& what) {
  throw std::invalid_argument("tensor " + std::string(tensor) + " " + what);
}

std::vector<float> padded_vector(int size) {
  return std::vector<float>(static_cast<size_t>(round_up(size, kPanelFeatures)));
}

int64_t num_elements(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

void check_source(const WeightSource& source, std::span<const int64_t> expected) {
  if (!std::equal(source.shape.begin(), source.shape.end(), expected.begin(), expected.end())) {
    fail(source.name,
         "must have shape " + shape_text(expected) + ", got " + shape_text(source.shape));
  }
  const int64_t row = expected.back(), block = block_length(source.type);
  if (row % block != 0) {
    fail(source.name, "has rows of " + std::to_string(row) +
                          " weights, but its storage format needs a multiple of " +
                          std::to_string(block));
  }
  const size_t bytes = row_bytes(source.type, num_elements(expected));
  if (source.data.size() != bytes) {
    fail(source.name, "must hold " + std::to_string(bytes) + " bytes, got " +
                          std::to_string(source.data.size()));
  }
  const int64_t heads = source.interleaved_heads;
  if (heads < 0 || (heads > 0 && expected[0] % (2 * heads) != 0)) {
    fail(source.name, "has " + std::to_string(expected[0]) + " rows, which interleaved_heads = " +
                          std::to_string(heads) + " does not divide into heads of even size");
  }
}

void store_vector(const WeightSource& source, FeatureRange range, std::vector<float>& out) {
  const int64_t n = source.shape[0];
  std::vector<float> values(static_cast<size_t>(n));
  dequantize_row(source.type, source.data.data(), values.data(), n);
  const SourceRows rows = {source.type, nullptr, static_cast<int>(n), 1, source.interleaved_heads};
  for (int i = 0; i < n; i++) {
    out[static_cast<size_t>(range.feature_of(i))] =
        values[static_cast<size_t>(rows.source_row(i))];
  }
}

void check_at_least(const char* field, int value, int least) {
  if (value < least) {
    throw std::invalid_argument(std::string(field) + " must be at least " +
                                std::to_string(least) + ", got " + std::to_string(value));
  }
}

}  // namespace

void ModelShape::check() const {
  check_at_least("vocab_size", vocab_size, 1);
  check_at_least("hidden_size", hidden_size, 1);
  check_at_least("intermediate_size", intermediate_size, 1);
  check_at_least("num_layers", num_layers, 1);
  check_at_least("num_kv_heads", num_kv_heads, 1);
  check_at_least("num_heads", num_heads, 1);
  check_at_least("head_dim", head_dim, 2);
  if (num_heads % num_kv_heads != 0) {
    throw std::invalid_argument("num_heads must be a multiple of num_kv_heads, got " +
                                std::to_string(num_heads) + " and " +
                                std::to_string(num_kv_heads));
  }
  if (head_dim % 2 != 0 || head_dim > kMaxHeadDim) {
    throw std::invalid_argument("head_dim must be even and at most " +
                                std::to_string(kMaxHeadDim) + ", got " +
                                std::to_string(head_dim));
  }
  if (rope_inv_freq.size() != static_cast<size_t>(head_dim / 2)) {
    throw std::invalid_argument("rope_inv_freq must have head_dim / 2 = " +
                                std::to_string(head_dim / 2) + " values, got " +
                                std::to_string(rope_inv_freq.size()));
  }
  if (sliding_windows.size() != static_cast<size_t>(num_layers)) {
    throw std::invalid_argument("sliding_windows must have num_layers = " +
                                std::to_string(num_layers) + " values, got " +
                                std::to_string(sliding_windows.size()));
  }
}

Quantization parse_quantization(std::string_view name) {
  if (name == "none") return Quantization::none;
  if (name == "int8") return Quantization::int8;
  throw std::invalid_argument("quantization must be none or int8, got " + std::string(name));
}

ModelWeights::ModelWeights(const ModelShape& shape, ElementType type, Quantization quantization,
                           const StoredTypes& kept_types)
    : shape_(shape),
      tied_(shape.tie_word_embeddings),
      layers_(static_cast<size_t>(shape.num_layers)),
      final_norm_(padded_vector(shape.hidden_size)) {
  const int hidden = shape.hidden_size;
  const WeightFormat format =
      quantization == Quantization::int8 ? WeightFormat::int8 : plain_format(type);
  const auto describe = [&](PackedMatrix& matrix, int out_features, int in_features) {
    matrix = {format, out_features, in_features, nullptr};
  };
  for (LayerWeights& layer : layers_) {
    describe(layer.qkv, shape.qkv_size(), hidden);
    describe(layer.o, hidden, shape.q_size());
    // Panels hold 16 gates and 16 ups: as many panels as halves of the intermediate size.
    const int half_panels = static_cast<int>(round_up(shape.intermediate_size, kHalfPanel));
    describe(layer.gate_up, 2 * half_panels, hidden);
    describe(layer.down, hidden, shape.intermediate_size);
    layer.input_norm = layer.post_attention_norm = padded_vector(hidden);
    if (shape.attention_bias) layer.qkv_bias = padded_vector(shape.qkv_size());
    if (shape.attention_output_bias) layer.o_bias = padded_vector(hidden);
    if (shape.qk_norm) layer.q_norm = layer.k_norm = padded_vector(shape.head_dim);
  }
  describe(embedding_, shape.vocab_size, hidden);
  if (!tied_) describe(head_, shape.vocab_size, hidden);
  keep_formats(kept_types);
  for (const PackedMatrix* matrix : matrices()) bytes_ += matrix->bytes();
  memory_ = HugeBuffer(bytes_);
  std::byte* next = memory_.data();
  for (PackedMatrix* matrix : matrices()) {
    matrix->data = next;
    next += matrix->bytes();
  }
}

// In the order in which a step reads them.
std::vector<PackedMatrix*> ModelWeights::matrices() {
  std::vector<PackedMatrix*> all;
  for (LayerWeights& layer : layers_) {
    all.insert(all.end(), {&layer.qkv, &layer.o, &layer.gate_up, &layer.down});
  }
  all.push_back(&embedding_);
  if (!tied_) all.push_back(&head_);
  return all;
}

void ModelWeights::keep_formats(const StoredTypes& kept_types) {
  std::map<const PackedMatrix*, TensorType> type_of;
  for (const auto& [name, type] : kept_types) {
    PackedMatrix* matrix = find(name).matrix;
    if (matrix == nullptr || !has_file_format(type)) fail(name, "cannot be kept as it is stored");
    const int64_t block = block_length(type);
    if (matrix->in_features % block != 0) {
      fail(name, "cannot be kept: rows of " + std::to_string(matrix->in_features) +
                     " weights are no whole blocks of " + std::to_string(block));
    }
    if (type_of.emplace(matrix, type).first->second != type) {
      fail(name, "cannot be kept: it shares a matrix with a tensor of another type");
    }
    matrix->format = file_format_of(type);
  }
}

void ModelWeights::set(const WeightSource& source, ThreadTeam& team) {
  const Place place = find(source.name);
  check_source(source, place.shape);
  if (place.matrix == nullptr) {
    store_vector(source, place.range, *place.vector);
    return;
  }
  const WeightFormat format = place.matrix->format;
  if (is_file_format(format) &&
      !(has_file_format(source.type) && file_format_of(source.type) == format)) {
    fail(source.name, "has another type than it was to be kept in");
  }
  pack_rows({source.type, source.data.data(), static_cast<int>(place.shape[0]),
             static_cast<int>(place.shape[1]), source.interleaved_heads},
            place.range, *place.matrix, team);
}

std::vector<std::span<std::byte>> ModelWeights::parts() {
  std::vector<std::span<std::byte>> parts = {{memory_.data(), bytes_}};
  const auto add = [&](std::vector<float>& vector) {
    if (!vector.empty()) parts.push_back(std::as_writable_bytes(std::span(vector)));
  };
  for (LayerWeights& layer : layers_) {
    for (auto* vector : {&layer.input_norm, &layer.post_attention_norm, &layer.qkv_bias,
                         &layer.o_bias, &layer.q_norm, &layer.k_norm}) {
      add(*vector);
    }
  }
  add(final_norm_);
  return parts;
}

ModelWeights::Place ModelWeights::find(std::string_view name) {
  const int64_t vocab = shape_.vocab_size, hidden = shape_.hidden_size;
  if (name == "embed_tokens") return {{vocab, hidden}, &embedding_, {}, nullptr};
  if (name == "lm_head" && !tied_) return {{vocab, hidden}, &head_, {}, nullptr};
  if (name == "norm") return {{hidden}, nullptr, {}, &final_norm_};
  constexpr std::string_view kPrefix = "layers.";
  if (name.starts_with(kPrefix)) {
    size_t index = 0;
    const std::string_view rest = name.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    const size_t digits = static_cast<size_t>(end - rest.data());
    if (error == std::errc() && index < layers_.size() && digits < rest.size() &&
        rest[digits] == '.') {
      Place place = find_in_layer(layers_[index], rest.substr(digits + 1));
      if (!place.shape.empty()) return place;
    }
  }
  fail(name, "is not one of this model's (see chairlift.model_spec.expected_weights)");
}

ModelWeights::Place ModelWeights::find_in_layer(LayerWeights& layer, std::string_view part) {
  const int64_t hidden = shape_.hidden_size, ffn = shape_.intermediate_size;
  const int64_t q = shape_.q_size(), kv = shape_.kv_size(), dim = shape_.head_dim;
  const FeatureRange at_k = {shape_.q_size(), 1}, at_v = {shape_.q_size() + shape_.kv_size(), 1};
  if (part == "q_proj") return {{q, hidden}, &layer.qkv, {}, nullptr};
  if (part == "k_proj") return {{kv, hidden}, &layer.qkv, at_k, nullptr};
  if (part == "v_proj") return {{kv, hidden}, &layer.qkv, at_v, nullptr};
  if (part == "o_proj") return {{hidden, q}, &layer.o, {}, nullptr};
  if (part == "gate_proj") return {{ffn, hidden}, &layer.gate_up, {0, 2}, nullptr};
  if (part == "up_proj") return {{ffn, hidden}, &layer.gate_up, {kHalfPanel, 2}, nullptr};
  if (part == "down_proj") return {{hidden, ffn}, &layer.down, {}, nullptr};
  if (part == "input_layernorm") return {{hidden}, nullptr, {}, &layer.input_norm};
  if (part == "post_attention_layernorm") {
    return {{hidden}, nullptr, {}, &layer.post_attention_norm};
  }
  if (shape_.attention_bias) {
    if (part == "q_proj.bias") return {{q}, nullptr, {}, &layer.qkv_bias};
    if (part == "k_proj.bias") return {{kv}, nullptr, at_k, &layer.qkv_bias};
    if (part == "v_proj.bias") return {{kv}, nullptr, at_v, &layer.qkv_bias};
  }
  if (shape_.attention_output_bias && part == "o_proj.bias") {
    return {{hidden}, nullptr, {}, &layer.o_bias};
  }
  if (shape_.qk_norm) {
    if (part == "q_norm") return {{dim}, nullptr, {}, &layer.q_norm};
    if (part == "k_norm") return {{dim}, nullptr, {}, &layer.k_norm};
  }
  return {};
}

}  // namespace chairlift
