// The KV cache and attention alone, for Python: to test them, and to move blocks about.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "attention.h"
#include "kv_cache.h"
#include "thread_team.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace chairlift {
namespace {

template <class T, class Shape>
using Array = nb::ndarray<const T, Shape, nb::c_contig, nb::device::cpu>;
template <class T>
using Vector = Array<T, nb::ndim<1>>;
template <class T>
using Matrix = Array<T, nb::ndim<2>>;
using Result = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

ElementType parse_element_type(const std::string& name) {
  if (name == "float32") return ElementType::float32;
  if (name == "bfloat16") return ElementType::bfloat16;
  throw std::invalid_argument("dtype must be float32 or bfloat16, got " + name);
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

float widen(const void* values, size_t index, ElementType type) {
  if (type == ElementType::float32) return static_cast<const float*>(values)[index];
  const uint32_t bits = uint32_t(static_cast<const uint16_t*>(values)[index]) << 16;
  return std::bit_cast<float>(bits);
}

// One stored value; the scale of int8 is left to the caller.
float stored_value(const std::byte* values, size_t index, KvType type) {
  if (type == KvType::int8) return float(reinterpret_cast<const int8_t*>(values)[index]);
  return widen(values, index,
               type == KvType::float32 ? ElementType::float32 : ElementType::bfloat16);
}

// Undoes the rotation of int8 keys.
void rotate_back(float* head, int dim) {
  const int size = dim & -dim;
  for (int distance = 1; distance < size; distance *= 2) {
    for (int i = 0; i < dim; i++) {
      if (i & distance) continue;
      const float a = head[i], b = head[i + distance];
      head[i] = a + b;
      head[i + distance] = a - b;
    }
  }
  for (int i = 0; i < dim; i++) head[i] /= float(size);
}

Result make_result(size_t rows, size_t columns) {
  float* data = new float[rows * columns];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Result(data, {rows, columns}, owner);
}

// Overwrites a block in all layers, padding included, as a block looks that others have used.
void fill_block(KvCache& cache, int block, uint8_t byte) {
  require(block >= 0 && block < cache.num_blocks(),
          "block must be between 0 and " + std::to_string(cache.num_blocks() - 1) + ", got " +
              std::to_string(block));
  const size_t bytes = cache.layout().block_bytes;
  for (int layer = 0; layer < cache.layout().shape.num_layers; layer++) {
    std::memset(cache.layer(layer) + size_t(block) * bytes, byte, bytes);
  }
}

// One token's K or V of all heads, wherever the layout put them.
void read_heads(const KvCache& cache, int layer, int64_t slot, bool value, float* out) {
  const KvLayout& layout = cache.layout();
  const int head_dim = layout.shape.head_dim;
  const int offset = int(slot % layout.block_size);
  const int group = offset / kGroupTokens, lane = offset % kGroupTokens;
  const int width = group < layout.full_groups ? kGroupTokens : layout.tail_tokens;
  const int depth = values_per_word(layout.shape.type);  // summed per step
  for (int head = 0; head < layout.shape.num_kv_heads; head++, out += head_dim) {
    const std::byte* start = cache.layer(layer) +
                             size_t(slot / layout.block_size) * layout.block_bytes +
                             size_t(head) * layout.head_bytes;
    const std::byte* base = start + layout.k_offset + size_t(group) * layout.group_bytes +
                            (value ? layout.v_offset : 0);
    float scale = 1.0f;
    if (layout.shape.type == KvType::int8) {
      const size_t index = size_t(group) * 32 + size_t(value ? kGroupTokens : 0) + size_t(lane);
      scale = widen(start, index, ElementType::bfloat16);
    }
    float found[kMaxHeadDim];
    for (int i = 0; i < layout.dim; i++) {
      const int index = value ? (i / 16 * width + lane / depth * depth) * 16 + i % 16 * depth +
                                    lane % depth
                              : (i / depth * width + lane) * depth + i % depth;
      found[i] = scale * stored_value(base, size_t(index), layout.shape.type);
    }
    if (layout.shape.type == KvType::int8 && !value) rotate_back(found, layout.dim);
    std::copy(found, found + head_dim, out);
  }
}

Result read_slots(const KvCache& cache, int layer, Vector<int64_t> slots, bool value) {
  const KvShape& shape = cache.layout().shape;
  require(layer >= 0 && layer < shape.num_layers, "layer is outside of the cache");
  const size_t columns = size_t(shape.num_kv_heads) * size_t(shape.head_dim);
  Result result = make_result(slots.shape(0), columns);
  for (size_t i = 0; i < slots.shape(0); i++) {
    const int64_t slot = slots.data()[i];
    require(slot >= 0 && slot < int64_t(cache.num_blocks()) * cache.layout().block_size,
            "slot is outside of the cache: " + std::to_string(slot));
    read_heads(cache, layer, slot, value, result.data() + i * columns);
  }
  return result;
}

// Attention of one layer with its own settings, over a cache that Python holds.
class AttentionLayer {
 public:
  AttentionLayer(const std::string& isa, const std::string& dtype, ThreadTeam& team,
                 KvCache& cache, int num_heads, Vector<double> inv_freq, double attention_factor, float scale, int sliding_window,
                 std::optional<Vector<float>> q_norm, std::optional<Vector<float>> k_norm,
                 float norm_eps)
      : kernels_(attention_kernels(parse_isa(isa))),
        team_(team),
        cache_(cache),
        shape_{num_heads, cache.layout().shape.num_kv_heads, cache.layout().shape.head_dim,
               parse_element_type(dtype), scale},
        rope_({inv_freq.data(), inv_freq.shape(0)}, attention_factor),
        plan_(checked(shape_), cache.layout().shape.num_layers),
        sliding_window_(sliding_window),
        norm_eps_(norm_eps) {
    const size_t head_dim = size_t(shape_.head_dim);
    require(inv_freq.shape(0) == head_dim / 2, "inv_freq must have head_dim / 2 elements");
    require(sliding_window >= 0, "sliding_window must be at least 0");
    if (q_norm) q_norm_.assign(q_norm->data(), q_norm->data() + q_norm->shape(0));
    if (k_norm) k_norm_.assign(k_norm->data(), k_norm->data() + k_norm->shape(0));
    require((q_norm_.empty() || q_norm_.size() == head_dim) &&
                (k_norm_.empty() || k_norm_.size() == head_dim),
            "q_norm and k_norm must have head_dim elements");
    for (int i = 0; i < team.size(); i++) {
      scratch_.push_back(std::make_unique_for_overwrite<AttentionScratch>());
    }
  }

  Result run(int layer, Matrix<float> qkv, Vector<int32_t> positions,
             Vector<int32_t> query_start_loc, Vector<int32_t> seq_lens,
             Matrix<int32_t> block_tables, Vector<int64_t> slot_mapping) {
    const size_t tokens = qkv.shape(0), seqs = seq_lens.shape(0);
    const int heads = shape_.num_heads + 2 * shape_.num_kv_heads;
    require(layer >= 0 && layer < cache_.layout().shape.num_layers,
            "layer is outside of the cache");
    require(qkv.shape(1) == size_t(heads) * size_t(shape_.head_dim), "qkv has the wrong width");
    require(positions.shape(0) == tokens && slot_mapping.shape(0) == tokens,
            "positions and slot_mapping must have one element per row of qkv");
    require(query_start_loc.shape(0) == seqs + 1 && block_tables.shape(0) == seqs,
            "query_start_loc, seq_lens and block_tables disagree on the number of sequences");
    const FlatBatch batch{int(tokens), int(seqs), positions.data(), query_start_loc.data(),
                          seq_lens.data(), block_tables.data(), int(block_tables.shape(1)),
                          slot_mapping.data()};
    check_flat_batch(batch, cache_.layout().block_size, cache_.num_blocks());
    return run_checked(layer, qkv, batch);
  }

 private:
  static const AttentionShape& checked(const AttentionShape& shape) {
    require(shape.num_heads >= 1 && shape.num_heads % shape.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads");
    return shape;
  }

  Result run_checked(int layer, const Matrix<float>& qkv, const FlatBatch& batch) {
    const size_t width = size_t(shape_.num_heads) * size_t(shape_.head_dim);
    const size_t tokens = size_t(batch.num_tokens);
    std::vector<std::byte> out(tokens * width * element_bytes(shape_.type));
    for (size_t i = 0; i < tokens; i++) rope_.reserve(batch.positions[i] + 1);
    plan_.build(batch);
    const AttentionCall call{shape_, cache_.layout(), cache_.layer(layer), &batch, rope_.cos(),
                             rope_.sin(), &plan_, layer, sliding_window_, qkv.data(),
                             int64_t(qkv.shape(1)), q_norm_.empty() ? nullptr : q_norm_.data(),
                             k_norm_.empty() ? nullptr : k_norm_.data(), norm_eps_, out.data(),
                             int64_t(width)};
    {
      nb::gil_scoped_release release;
      team_.run([&](int tid) {
        const Share rows = share_of(batch.num_tokens, tid, team_.size());
        if (!plan_.fuses_rope()) {
          kernels_.rope_and_store(call, int(rows.begin), int(rows.end));
          team_.barrier();
        }
        kernels_.attend(call, *scratch_[size_t(tid)]);
      });
    }
    Result result = make_result(tokens, width);
    for (size_t i = 0; i < tokens * width; i++) {
      result.data()[i] = widen(out.data(), i, shape_.type);
    }
    return result;
  }

  const AttentionKernels& kernels_;
  ThreadTeam& team_;
  KvCache& cache_;
  AttentionShape shape_;
  RopeTable rope_;
  AttentionPlan plan_;
  int sliding_window_;
  float norm_eps_;
  std::vector<float> q_norm_, k_norm_;
  std::vector<std::unique_ptr<AttentionScratch>> scratch_;
};

KvCache* make_cache(int num_layers, int num_kv_heads, int head_dim, const std::string& dtype,
                    int num_blocks, int block_size) {
  // "auto" has nothing to follow here.
  require(dtype != "auto", "dtype must be float32, bfloat16 or int8, got auto");
  const KvType type = parse_kv_type(dtype, ElementType::float32);
  return new KvCache({num_layers, num_kv_heads, head_dim, type}, num_blocks, block_size);
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<KvCache>(m, "KvCache")
      .def(nb::new_(&make_cache), "num_layers"_a, "num_kv_heads"_a, "head_dim"_a, "dtype"_a,
           "num_blocks"_a, "block_size"_a)
      .def_prop_ro("num_blocks", &KvCache::num_blocks)
      .def_prop_ro("num_bytes", &KvCache::bytes)
      .def_prop_ro("bytes_per_block",
                   [](const KvCache& cache) { return cache.layout().block_bytes_all_layers(); })
      .def("fill_block", &fill_block, "block"_a, "byte"_a)
      .def(
          "read_keys", [](const KvCache& cache, int layer, Vector<int64_t> slots) {
            return read_slots(cache, layer, slots, false);
          },
          "layer"_a, "slots"_a)
      .def(
          "read_values", [](const KvCache& cache, int layer, Vector<int64_t> slots) {
            return read_slots(cache, layer, slots, true);
          },
          "layer"_a, "slots"_a);

  nb::class_<AttentionLayer>(m, "AttentionLayer")
      .def(nb::init<const std::string&, const std::string&, ThreadTeam&, KvCache&, int, Vector<double>, double, float,
                    int, std::optional<Vector<float>>, std::optional<Vector<float>>, float>(),
           nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::kw_only(), "isa"_a, "dtype"_a,
           "team"_a,
           "cache"_a, "num_heads"_a, "inv_freq"_a, "attention_factor"_a = 1.0, "scale"_a,
           "sliding_window"_a = 0, "q_norm"_a = nb::none(), "k_norm"_a = nb::none(),
           "norm_eps"_a = 1e-6f)
      .def("run", &AttentionLayer::run, "layer"_a, "qkv"_a, "positions"_a, "query_start_loc"_a,
           "seq_lens"_a, "block_tables"_a, "slot_mapping"_a);
}

}  // namespace chairlift
