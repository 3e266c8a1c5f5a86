#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "checksum.h"
#include "model.h"
#include "weight_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace chairlift {
namespace {

template <class T, size_t kDims>
using Array = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
template <class T, size_t kDims>
using OutArray = nb::ndarray<T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;

void make_shape(ModelShape* self, int vocab_size, int hidden_size, int intermediate_size,
                int num_layers, int num_heads, int num_kv_heads, int head_dim, float rms_norm_eps,
                std::vector<double> rope_inv_freq, double rope_attention_factor,
                std::vector<int> sliding_windows, bool attention_bias, bool attention_output_bias,
                bool qk_norm, bool tie_word_embeddings) {
  new (self) ModelShape{vocab_size,
                        hidden_size,
                        intermediate_size,
                        num_layers,
                        num_heads,
                        num_kv_heads,
                        head_dim,
                        rms_norm_eps,
                        std::move(rope_inv_freq),
                        rope_attention_factor,
                        std::move(sliding_windows),
                        attention_bias,
                        attention_output_bias,
                        qk_norm,
                        tie_word_embeddings};
}

TensorType checked_tensor_type(std::string_view tensor, std::string_view type_name) {
  TensorType type;
  if (!parse_tensor_type(type_name, type)) {
    throw std::invalid_argument("tensor " + std::string(tensor) + " has unknown tensor_type " +
                                std::string(type_name));
  }
  return type;
}

void make_model(Model* self, const ModelShape& shape, std::string_view dtype,
                std::string_view quantization, std::string_view kv_cache_dtype, int num_threads,
                int max_num_batched_tokens,
                const std::map<std::string, std::string>& kept_types) {
  const ElementType type = parse_element_type(dtype);
  const KvType kv_type = parse_kv_type(kv_cache_dtype, type);
  StoredTypes kept;
  for (const auto& [name, type_name] : kept_types) {
    kept[name] = checked_tensor_type(name, type_name);
  }
  if (!kept.empty() && type != ElementType::bfloat16) {
    throw std::invalid_argument("dtype must be bfloat16 with weights kept as in the file, got " +
                                std::string(dtype));
  }
  new (self) Model(shape, type, parse_quantization(quantization), kv_type, num_threads,
                   max_num_batched_tokens, kept);
}

void check_size(const char* field, size_t size, size_t expected) {
  if (size != expected) {
    throw std::invalid_argument(std::string(field) + " must have " + std::to_string(expected) +
                                " elements, got " + std::to_string(size));
  }
}

void set_weight(Model& model, std::string_view name, std::string_view tensor_type,
                const std::vector<int64_t>& shape, const Array<uint8_t, 1>& data,
                int interleaved_heads) {
  const TensorType type = checked_tensor_type(name, tensor_type);
  const WeightSource source = {name, type, shape, {data.data(), data.size()}, interleaved_heads};
  const nb::gil_scoped_release release;
  model.set_weight(source);
}

// Views of the model's memory, which live as long as they do.
std::vector<nb::object> weight_parts(nb::handle self) {
  std::vector<nb::object> views;
  for (const std::span<std::byte> part : nb::cast<Model&>(self).weight_parts()) {
    const nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> view(part.data(), {part.size()}, self);
    views.push_back(nb::cast(view));
  }
  return views;
}

uint64_t checksum_of(const Array<uint8_t, 1>& data) {
  return checksum(std::as_bytes(std::span(data.data(), data.size())));
}

std::string read_parts_into(int descriptor, const std::vector<OutArray<uint8_t, 1>>& parts,
                            size_t chunk_bytes, const std::vector<uint64_t>& checksums,
                            ThreadTeam& team) {
  if (chunk_bytes == 0) throw std::invalid_argument("chunk_bytes must be at least 1, got 0");
  std::vector<std::span<std::byte>> spans;
  for (const auto& part : parts) {
    spans.push_back(std::as_writable_bytes(std::span(part.data(), part.size())));
  }
  const nb::gil_scoped_release release;
  return read_parts(descriptor, spans, chunk_bytes, checksums, team);
}

void forward(Model& model, const Array<int32_t, 1>& token_ids, const Array<int32_t, 1>& positions,
             const Array<int32_t, 1>& query_start_loc, const Array<int32_t, 1>& seq_lens,
             const Array<int32_t, 2>& block_tables, const Array<int64_t, 1>& slot_mapping) {
  const size_t num_tokens = token_ids.size(), num_seqs = seq_lens.size();
  check_size("positions", positions.size(), num_tokens);
  check_size("slot_mapping", slot_mapping.size(), num_tokens);
  check_size("query_start_loc", query_start_loc.size(), num_seqs + 1);
  check_size("block_tables (rows)", block_tables.shape(0), num_seqs);
  if (num_tokens > static_cast<size_t>(model.max_num_batched_tokens()) || num_seqs > num_tokens) {
    throw std::invalid_argument(
        "token_ids must have at most max_num_batched_tokens = " +
        std::to_string(model.max_num_batched_tokens()) +
        " elements and at least one per sequence, got " + std::to_string(num_tokens) + " for " +
        std::to_string(num_seqs) + " sequences");
  }
  const FlatBatch batch = {
      .num_tokens = static_cast<int>(num_tokens),
      .num_seqs = static_cast<int>(num_seqs),
      .positions = positions.data(),
      .query_start_loc = query_start_loc.data(),
      .seq_lens = seq_lens.data(),
      .block_tables = block_tables.data(),
      .block_table_stride = static_cast<int>(block_tables.shape(1)),
      .slot_mapping = slot_mapping.data(),
  };
  const nb::gil_scoped_release release;
  model.forward(token_ids.data(), batch);
}

void compute_logits(Model& model, const Array<int32_t, 1>& rows, const OutArray<float, 2>& out) {
  check_size("out (rows)", out.shape(0), rows.size());
  check_size("out (columns)", out.shape(1), static_cast<size_t>(model.shape().vocab_size));
  const nb::gil_scoped_release release;
  model.compute_logits({rows.data(), rows.size()}, out.data());
}

void allocate_swap(Model& model, int num_blocks, const std::string& path) {
  try {
    model.allocate_swap(num_blocks, path);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    if (path.empty()) {
      PyErr_SetFromErrno(PyExc_OSError);
    } else {
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    }
    throw nb::python_error();
  }
}

void swap_out(Model& model, const Array<int32_t, 1>& blocks, const Array<int32_t, 1>& slots) {
  const nb::gil_scoped_release release;
  model.swap_out({blocks.data(), blocks.size()}, {slots.data(), slots.size()});
}

void swap_in(Model& model, const Array<int32_t, 1>& slots, const Array<int32_t, 1>& blocks) {
  const nb::gil_scoped_release release;
  model.swap_in({slots.data(), slots.size()}, {blocks.data(), blocks.size()});
}

std::map<std::string, int64_t> timers(Model& model) {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < kPhaseNames.size(); i++) {
    result[kPhaseNames[i]] = model.timers().nanoseconds()[i];
  }
  return result;
}

}  // namespace

void bind_model(nb::module_& m) {
  m.def("checksum", &checksum_of, "data"_a.noconvert());
  m.def("read_parts", &read_parts_into, "descriptor"_a, "parts"_a.noconvert(), "chunk_bytes"_a,
        "checksums"_a, "team"_a);

  nb::class_<ModelShape>(m, "ModelShape")
      .def("__init__", &make_shape, nb::kw_only(), "vocab_size"_a, "hidden_size"_a,
           "intermediate_size"_a, "num_layers"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a,
           "rms_norm_eps"_a, "rope_inv_freq"_a, "rope_attention_factor"_a, "sliding_windows"_a,
           "attention_bias"_a, "attention_output_bias"_a, "qk_norm"_a, "tie_word_embeddings"_a);

  nb::class_<Model>(m, "Model")
      .def("__init__", &make_model, "shape"_a, "dtype"_a, "quantization"_a, "kv_cache_dtype"_a,
           "num_threads"_a,
           "max_num_batched_tokens"_a, "kept_types"_a)
      .def("set_weight", &set_weight, "name"_a, "tensor_type"_a, "shape"_a,
           "data"_a.noconvert(), "interleaved_heads"_a)
      .def("weight_parts", &weight_parts)
      .def("allocate_kv", &Model::allocate_kv, "num_blocks"_a, "block_size"_a)
      .def("kv_bytes_per_block", &Model::kv_bytes_per_block, "block_size"_a)
      .def("allocate_swap", &allocate_swap, "num_blocks"_a, "path"_a)
      .def("swap_out", &swap_out, "blocks"_a.noconvert(), "slots"_a.noconvert())
      .def("swap_in", &swap_in, "slots"_a.noconvert(), "blocks"_a.noconvert())
      .def("forward", &forward, "token_ids"_a.noconvert(), "positions"_a.noconvert(),
           "query_start_loc"_a.noconvert(), "seq_lens"_a.noconvert(),
           "block_tables"_a.noconvert(), "slot_mapping"_a.noconvert())
      .def("compute_logits", &compute_logits, "rows"_a.noconvert(), "out"_a.noconvert())
      .def("timers", &timers)
      .def("reset_timers", [](Model& model) { model.timers().reset(); })
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("buffer_bytes", &Model::buffer_bytes)
      .def_prop_ro(
          "team", [](Model& model) -> ThreadTeam& { return model.team(); },
          nb::rv_policy::reference_internal)
      .def_prop_ro("num_threads", [](Model& model) { return model.team().size(); })
      .def_prop_ro("isa", [](const Model& model) { return std::string(isa_name(model.isa())); });
}

}  // namespace chairlift
