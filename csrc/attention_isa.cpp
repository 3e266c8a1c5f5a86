// Attention's kernels, compiled once per instruction set level; see attention.h for the formulas.
#include <cfloat>

#include "attention.h"
#include "attention_context.h"
#include "attention_int8_products.h"
#include "attention_products.h"
#include "attention_rope.h"
#include "simd.h"
#if defined(__AMX_BF16__)
#include "attention_amx.h"
#include "attention_amx_int8.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {
namespace {

constexpr float kLog2e = 1.44269504088896341f;

// Up to 16 rows of one item: row r of the item is query token r / group, head r % group.
struct RowTile {
  int first, count;  // rows of the item
  int positions[kTileRows];
  float maxima[kTileRows];  // of the scores so far, times scale / ln 2
  float sums[kTileRows];
  float factors[kTileRows];  // from what the first product gives to exponents of 2
};

// 2^x for x <= 0, or rounding above it; exactly 1 at 0 and exactly 0 below -126, -inf included.
// Minimax polynomials of 2^r on [-1/2, 1/2] with p(0) = 1: relative error 2.9e-6, which drowns in
// the rounding of weights to bfloat16 (2e-3) or 15 bits, or 1.9e-7 for float32 weights, rounding
// included.
// Lanes that vanish may hold anything until the last step.
template <bool kCoarse>
CHAIRLIFT_INLINE F32x16 exp2_weight(F32x16 x) {
  const Mask16 vanishes = less(x, broadcast(-126.0f));
  const F32x16 whole = round_to_int(x);
  const F32x16 rest = sub(x, whole);
  F32x16 p;
  if constexpr (kCoarse) {
    p = broadcast(0x1.3a02ccp-7f);
    p = fmadd(p, rest, broadcast(0x1.c9fc46p-5f));
    p = fmadd(p, rest, broadcast(0x1.ec0378p-3f));
    p = fmadd(p, rest, broadcast(0x1.62e12cp-1f));
  } else {
    p = broadcast(0x1.5bba14p-10f);
    p = fmadd(p, rest, broadcast(0x1.3cea88p-7f));
    p = fmadd(p, rest, broadcast(0x1.c6b752p-5f));
    p = fmadd(p, rest, broadcast(0x1.ebf9bcp-3f));
    p = fmadd(p, rest, broadcast(0x1.62e42ap-1f));
  }
  p = fmadd(p, rest, broadcast(1.0f));
  return select(vanishes, zero(), scale_by_power_of_two(p, whole));
}

// Softmax weights as the second product reads them; returns them as it will see them.
CHAIRLIFT_INLINE F32x16 store_weights(float* p, F32x16 v) {
  store(p, v);
  return v;
}
CHAIRLIFT_INLINE F32x16 store_weights(bf16* p, F32x16 v) {
  store_bf16(p, v);
  return load_bf16(p);
}

CHAIRLIFT_INLINE int min_int(int a, int b) { return a < b ? a : b; }

template <class Products>
class Worker {
 public:
  Worker(const AttentionCall& call, AttentionScratch& scratch)
      : call_(call),
        scratch_(scratch),
        dim_(call.kv_layout.dim),
        group_(call.shape.group()),
        fuses_rope_(call.plan->fuses_rope()),
        products_(scratch) {}

  // Claims and attends until nothing is left, one item ahead so as to prefetch it.
  void run() {
    const AttentionItem* next = call_.plan->claim(call_.layer);
    while (next != nullptr) {
      const AttentionItem& item = *next;
      next = call_.plan->claim(call_.layer);
      next_ = next;
      prefetch_slots();
      attend_item(item);
    }
    products_.end();
  }

 private:
  void attend_item(const AttentionItem& item) {
    if (fuses_rope_) {
      for (int i = 0; i < item.num_tokens; i++) {
        store_token(call_, item.first_token + i, item.kv_head);
      }
    }
    const int rows = item.num_tokens * group_;
    for (int row = 0; row < rows; row += kTileRows) {
      attend_tile(item, row, min_int(rows - row, kTileRows));
    }
  }

  void prefetch_slots() const {
    if (next_ == nullptr || !fuses_rope_) return;
    for (int i = 0; i < next_->num_tokens; i++) {
      prefetch_token(call_, next_->first_token + i, next_->kv_head);
    }
  }

  void attend_tile(const AttentionItem& item, int first_row, int rows) {
    RowTile tile;
    begin_tile(item, first_row, rows, tile);
    const Context context(call_, item.seq, item.kv_head);
    const int end = tile.positions[rows - 1] + 1;
    int begin = window_begin(tile.positions[0]);
    for (bool first = true; begin < end; first = false) {
      const int chunk_end = (begin / kChunkTokens + 1) * kChunkTokens;
      const Span span{begin, min_int(chunk_end, end)};
      attend_chunk(context, span, first, tile);
      begin = span.end;
    }
    finish_tile(item, tile);
  }

  int window_begin(int position) const {
    const int begin = position - call_.sliding_window + 1;
    return call_.sliding_window == 0 || begin < 0 ? 0 : begin;
  }

  // Rotates this tile's queries into scratch, padded with zeros, and resets its sums.
  void begin_tile(const AttentionItem& item, int first_row, int rows, RowTile& tile) {
    tile.first = first_row;
    tile.count = rows;
    products_.begin(rows);
    for (int r = 0; r < rows; r++) {
      const int token = item.first_token + (first_row + r) / group_;
      tile.positions[r] = call_.batch->positions[token];
      tile.maxima[r] = -FLT_MAX;  // finite: -inf - -inf would be NaN
      tile.sums[r] = 0.0f;
      const float* head =
          call_.qkv + token * call_.qkv_stride + head_offset(item, first_row + r);
      tile.factors[r] = call_.shape.scale * kLog2e * store_query(r, head, tile.positions[r]);
    }
    std::memset(scratch_.out, 0, static_cast<size_t>(rows) * static_cast<size_t>(dim_) * 4);
  }

  // Row r of q; returns what its scores have to be multiplied by.
  float store_query(int r, const float* head, int position) {
    if constexpr (Products::kQuantised) {
      float* rotated = scratch_.out + r * dim_;  // free until the sums start
      rotate_head(call_, head, call_.q_norm, position,
                  [&](int i, F32x16 lanes) { store(rotated + i, lanes); });
      hadamard(rotated, dim_);
      const float most = largest_magnitude(rotated, dim_);
      const float inverse = most < kSmallestHead ? 0.0f : 127.0f / most;
      for (int i = 0; i < dim_; i += kLanes) {
        store(rotated + i, to_whole(load(rotated + i), inverse));
      }
      products_.store_query(r, rotated, dim_);
      if (most < kSmallestHead) return 1.0f;  // 0 times the -inf of masked scores would be NaN
      return most * (1.0f / 127.0f) / static_cast<float>(hadamard_size(dim_));
    } else {
      auto* q = reinterpret_cast<typename Products::Row*>(scratch_.q) + r * dim_;
      rotate_head(call_, head, call_.q_norm, position,
                  [&](int i, F32x16 lanes) { store_plain(q + i, lanes); });
      return 1.0f;
    }
  }

  // Rounded as K is, even where it is kept as float.
  CHAIRLIFT_INLINE void store_plain(bf16* q, F32x16 v) const { store_bf16(q, v); }
  CHAIRLIFT_INLINE void store_plain(float* q, F32x16 v) const {
    if (call_.kv_layout.shape.type == KvType::bfloat16) {
      alignas(64) bf16 rounded[kLanes];
      store_bf16(rounded, v);
      v = load_bf16(rounded);
    }
    store(q, v);
  }

  int head_offset(const AttentionItem& item, int row) const {
    return (item.kv_head * group_ + row % group_) * call_.shape.head_dim;
  }

  void attend_chunk(const Context& context, Span span, bool first, RowTile& tile) {
    ChunkGroups groups;
    context.find_groups(span, scratch_, groups);
    if constexpr (Products::kQuantised) context.load_scales(span, groups, scratch_);
    const int end = tile.positions[tile.count - 1] + 1;
    products_.fetch_keys(groups.k, min_int(groups.count, Products::kGroupsAtOnce), dim_);
    for (int g = 0; g < groups.count; g += Products::kGroupsAtOnce) {
      const int count = min_int(groups.count - g, Products::kGroupsAtOnce);
      for (int i = g; i < g + count; i++) prefetch_ahead(context, groups, i, end);
      const int behind = g + count;
      products_.fetch_keys(groups.k + behind,
                           min_int(groups.count - behind, Products::kGroupsAtOnce), dim_);
      float* scores = scratch_.scores + g * Products::kScoreStride;
      if constexpr (Products::kQuantised) {
        products_.scores(tile.count, dim_, groups.k + g, count, scores);
      } else {
        products_.scores(reinterpret_cast<const typename Products::Row*>(scratch_.q), tile.count,
                         dim_, groups.k + g, count, scores);
      }
    }
    for (int r = 0; r < tile.count; r++) {
      const float scale = softmax_row(groups, r, tile);
      if (!first) scale_out(r, scale);
    }
    if constexpr (Products::kQuantised) {
      products_.values(tile.count, dim_, groups.v, groups.count, weight_scales_, scratch_.out);
    } else {
      products_.values(reinterpret_cast<const typename Products::Row*>(scratch_.weights),
                       tile.count, dim_, groups.v, groups.count, scratch_.out);
    }
  }

  // What comes a chunk after group g: of this context, or of the next item if that is a decode,
  // whose pages are cold.
  void prefetch_ahead(const Context& context, const ChunkGroups& groups, int g, int end) const {
    const int position = groups.first_position + g * kGroupTokens + kChunkTokens;
    if (position < end) return context.prefetch_group(position);
    if (next_ == nullptr || next_->num_tokens != 1) return;
    const int last = call_.batch->positions[next_->first_token];
    const int next_position = window_begin(last) + g * kGroupTokens;
    if (next_position > last) return;
    Context(call_, next_->seq, next_->kv_head).prefetch_group(next_position);
  }

  // Takes the scores of tokens that the row must not see out of the running.
  void mask_row(const ChunkGroups& groups, int position, float* scores) const {
    const int begin = window_begin(position) - groups.first_position;
    const int end = position + 1 - groups.first_position;  // visible: [begin, end), may be empty
    const auto mask = [&](int g) {
      const int base = g * kGroupTokens;
      const Mask16 visible = mask_and(first_lanes(end - base), mask_not(first_lanes(begin - base)));
      float* s = scores + g * Products::kScoreStride;
      store(s, select(visible, load(s), broadcast(-__builtin_inff())));
    };
    for (int g = 0; g < groups.count && g * kGroupTokens < begin; g++) mask(g);
    int g = end < 0 ? 0 : end / kGroupTokens;
    for (; g < groups.count; g++) mask(g);
  }

  static float row_maximum(const float* scores, int groups) {
    F32x16 even = load(scores), odd = even;
    int g = 0;
    for (; g + 2 <= groups; g += 2) {
      even = max(load(scores + g * Products::kScoreStride), even);
      odd = max(load(scores + (g + 1) * Products::kScoreStride), odd);
    }
    if (g < groups) even = max(load(scores + g * Products::kScoreStride), even);
    return reduce_max(max(even, odd));
  }

  // Scores of one row become weights; returns what the row's earlier output must be scaled by.
  float softmax_row(const ChunkGroups& groups, int r, RowTile& tile) {
    float* scores = scratch_.scores + r * kGroupTokens;
    const float factor = tile.factors[r];
    if constexpr (Products::kQuantised) scale_scores(groups, scores);
    mask_row(groups, tile.positions[r], scores);
    const float before = tile.maxima[r], here = row_maximum(scores, groups.count) * factor;
    const float maximum = here > before ? here : before;
    const F32x16 sum = weigh_row(groups, r, factor, maximum);
    const float scale = lane0(exp2_weight<false>(broadcast(before - maximum)));
    tile.sums[r] = tile.sums[r] * scale + reduce_add(sum);
    tile.maxima[r] = maximum;
    return scale;
  }

  // Makes one row's weights of its scores; returns their sums, to be summed up.
  F32x16 weigh_row(const ChunkGroups& groups, int r, float factor, float maximum) {
    float* scores = scratch_.scores + r * kGroupTokens;
    constexpr int kStride = Products::kScoreStride;
    const F32x16 factors = broadcast(factor), shift = broadcast(-maximum);
    F32x16 sum = zero();
    if constexpr (Products::kQuantised) {
      F32x16 largest = zero();
      for (int g = 0; g < groups.count; g++) {
        const F32x16 weight = exp2_weight<true>(fmadd(load(scores + g * kStride), factors, shift));
        const F32x16 scaled = mul(weight, load(scratch_.v_scales + g * kGroupTokens));
        sum = add(sum, weight);
        largest = max(largest, scaled);
        store(scores + g * kStride, scaled);
      }
      store_whole_weights(groups, r, reduce_max(largest));
    } else {
      using Row = typename Products::Row;
      Row* weights = reinterpret_cast<Row*>(scratch_.weights) + r * kGroupTokens;
      for (int g = 0; g < groups.count; g++) {
        const F32x16 exponent = fmadd(load(scores + g * kStride), factors, shift);
        const F32x16 weight = exp2_weight<sizeof(Row) == 2>(exponent);
        sum = add(sum, store_weights(weights + g * kStride, weight));
      }
    }
    return sum;
  }

  // Scaled weights of one row, of which the largest is known, become whole numbers.
  void store_whole_weights(const ChunkGroups& groups, int r, float largest) {
    const float* scaled = scratch_.scores + r * kGroupTokens;
    const F32x16 levels = broadcast(largest < kSmallestHead ? 0.0f : kWeightLevels / largest);
    for (int g = 0; g < groups.count; g++) {
      products_.store_weights(g, r, mul(load(scaled + g * Products::kScoreStride), levels));
    }
    products_.pad_weights(groups.count, r);
    weight_scales_[r] = largest / kWeightLevels;
  }

  // Whole numbers become scores, as far as the token decides.
  void scale_scores(const ChunkGroups& groups, float* scores) const {
    for (int g = 0; g < groups.count; g++) {
      float* s = scores + g * Products::kScoreStride;
      store(s, mul(to_floats(load_words(s)), load(scratch_.k_scales + g * kGroupTokens)));
    }
  }

  static CHAIRLIFT_INLINE float lane0(F32x16 v) {
    alignas(64) float lanes[kLanes];
    store(lanes, v);
    return lanes[0];
  }

  void scale_out(int r, float scale) {
    float* out = scratch_.out + r * dim_;
    for (int i = 0; i < dim_; i += kLanes) store(out + i, mul(load(out + i), broadcast(scale)));
  }

  void finish_tile(const AttentionItem& item, const RowTile& tile) {
    for (int r = 0; r < tile.count; r++) {
      const int row = tile.first + r;
      const int token = item.first_token + row / group_;
      const int64_t at = token * call_.out_stride + head_offset(item, row);
      const float* values = scratch_.out + r * dim_;
      if (call_.shape.type == ElementType::float32) {
        store_head(static_cast<float*>(call_.out) + at, values, tile.sums[r]);
      } else {
        store_head(static_cast<bf16*>(call_.out) + at, values, tile.sums[r]);
      }
    }
  }

  template <class T>
  void store_head(T* out, const float* values, float sum) const {
    const F32x16 inverse = broadcast(1.0f / sum);
    const int head_dim = call_.shape.head_dim;
    int i = 0;
    for (; i + kLanes <= head_dim; i += kLanes) {
      store_from_f32(out + i, mul(load(values + i), inverse));
    }
    if (i < head_dim) store_partial(out + i, mul(load(values + i), inverse), head_dim - i);
  }

  const AttentionCall& call_;
  AttentionScratch& scratch_;
  const int dim_;
  const int group_;
  const bool fuses_rope_;
  const AttentionItem* next_ = nullptr;
  Products products_;
  float weight_scales_[kTileRows];  // of whole weights, one a row
};

template <class Products>
void attend_with(const AttentionCall& call, AttentionScratch& scratch) {
  Worker<Products>(call, scratch).run();
}

void attend(const AttentionCall& call, AttentionScratch& scratch) {
#if defined(__AMX_BF16__)
  using Bfloat16 = AmxProducts;
  using Int8 = AnyRowsProducts;
#elif defined(__AVX512BF16__)
  using Bfloat16 = VectorProducts<DotPath>;
  using Int8 = QuantisedProducts<ByteDots>;
#else
  using Bfloat16 = VectorProducts<WidenedPath>;
  using Int8 = QuantisedProducts<WidenedDots>;
#endif
  switch (call.kv_layout.shape.type) {
    case KvType::float32: return attend_with<VectorProducts<Float32Path>>(call, scratch);
    case KvType::bfloat16: return attend_with<Bfloat16>(call, scratch);
    case KvType::int8: return attend_with<Int8>(call, scratch);
  }
}

}  // namespace

CHAIRLIFT_DEFINE_KERNELS(AttentionKernels, attention_kernels) = {rope_and_store, attend};

}  // namespace chairlift::CHAIRLIFT_ISA
