// Attention's kernels, compiled once per instruction set level; see attention.h for the formulas.
#include "attention.h"
#include "attention_context.h"
#include "attention_int8_products.h"
#include "attention_products.h"
#include "attention_rope.h"
#include "attention_softmax.h"
#include "simd.h"
#if defined(__AMX_BF16__)
#include "attention_amx.h"
#include "attention_amx_int8.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {
namespace {

template <class Products>
class Worker {
 public:
  Worker(const AttentionCall& call, AttentionScratch& scratch)
      : call_(call),
        scratch_(scratch),
        dim_(call.kv_layout.dim),
        group_(call.shape.group()),
        fuses_rope_(call.plan->fuses_rope()),
        products_(scratch),
        softmax_(products_, scratch, call.sliding_window) {}

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
    for (int row = 0; row < rows; row += kItemRows) {
      attend_rows(item, row, min_int(rows - row, kItemRows));
    }
  }

  CHAIRLIFT_INLINE void prefetch_slots() const {
    if (next_ == nullptr || !fuses_rope_) return;
    for (int i = 0; i < next_->num_tokens; i++) {
      prefetch_token(call_, next_->first_token + i, next_->kv_head);
    }
  }

  // Up to kItemRows rows, in tiles of about the same size.
  void attend_rows(const AttentionItem& item, int first_row, int rows) {
    RowTile tiles[kItemTiles];
    const int count = (rows + kTileRows - 1) / kTileRows, height = (rows + count - 1) / count;
    products_.begin(height);
    for (int i = 0; i < count; i++) {
      const int row = i * height;
      begin_tile(item, first_row + row, min_int(rows - row, height), i, tiles[i]);
    }
    const Context context(call_, item.seq, item.kv_head);
    const int end = tiles[count - 1].last_position() + 1;
    int begin = softmax_.window_begin(tiles[0].positions[0]);
    while (begin < end) {
      const int chunk_end = (begin / kChunkTokens + 1) * kChunkTokens;
      const Span span{begin, min_int(chunk_end, end)};
      attend_chunk(context, span, end, tiles, count);
      begin = span.end;
    }
    for (int i = 0; i < count; i++) finish_tile(item, tiles[i]);
  }

  // Rotates this tile's queries into scratch and resets its sums.
  void begin_tile(const AttentionItem& item, int first_row, int rows, int index, RowTile& tile) {
    tile.index = index;
    tile.first = first_row;
    tile.count = rows;
    store(tile.maxima, broadcast(-FLT_MAX));  // finite: -inf - -inf would be NaN
    store(tile.sums, zero());
    store(tile.factors, zero());
    for (int r = 0; r < rows; r++) {
      const int token = item.first_token + (first_row + r) / group_;
      tile.positions[r] = call_.batch->positions[token];
      const float* head =
          call_.qkv + token * call_.qkv_stride + head_offset(item, first_row + r);
      tile.factors[r] =
          call_.shape.scale * kLog2e * store_query(tile, r, head, tile.positions[r]);
    }
    std::memset(scratch_.out[index], 0, static_cast<size_t>(rows) * static_cast<size_t>(dim_) * 4);
  }

  // Row r of a tile's q; returns what its scores have to be multiplied by.
  float store_query(const RowTile& tile, int r, const float* head, int position) {
    if constexpr (Products::kQuantised) {
      float* rotated = scratch_.out[tile.index] + r * dim_;  // free until the sums start
      rotate_head(call_, head, call_.q_norm, position,
                  [&](int i, F32x16 lanes) { store(rotated + i, lanes); });
      hadamard(rotated, dim_);
      const float most = largest_magnitude(rotated, dim_);
      const float inverse = most < kSmallestHead ? 0.0f : 127.0f / most;
      for (int i = 0; i < dim_; i += kLanes) {
        store(rotated + i, to_whole(load(rotated + i), inverse));
      }
      products_.store_query(tile, r, rotated, dim_);
      if (most < kSmallestHead) return 1.0f;  // 0 times the -inf of masked scores would be NaN
      return most * (1.0f / 127.0f) / static_cast<float>(hadamard_size(dim_));
    } else {
      typename Products::Row* q = products_.query_row(tile, r, dim_);
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

  void attend_chunk(const Context& context, Span span, int end, RowTile* tiles, int count) {
    ChunkGroups groups;
    context.find_groups(span, scratch_, groups);
    if constexpr (Products::kQuantised) context.load_scales(span, groups, scratch_);
    products_.begin_chunk(groups, dim_);
    // Tiles whose rows all lie before the chunk see nothing of it.
    while (tiles->last_position() < groups.first_position) tiles++, count--;
    for (int i = 0; i < count; i++) {
      const int seen = tiles[i].last_position() - groups.first_position + kGroupTokens;
      tiles[i].groups = min_int(groups.count, seen / kGroupTokens);
    }
    products_.scores(tiles, count, dim_, groups, [&](int g) __attribute__((always_inline)) {
      prefetch_ahead(context, groups, g, end);
    });
    for (int i = 0; i < count; i++) {
      softmax_.weigh(groups, tiles[i]);
      scale_out(tiles[i]);
    }
    products_.values(tiles, count, dim_, groups);
  }

  // What comes a chunk after group g: of this context, or of the next item if that is a decode,
  // whose pages are cold.
  CHAIRLIFT_INLINE void prefetch_ahead(const Context& context, const ChunkGroups& groups, int g,
                                       int end) const {
    const int position = groups.first_position + g * kGroupTokens + kChunkTokens;
    if (position < end) return context.prefetch_group(position);
    if (next_ == nullptr || next_->num_tokens != 1) return;
    const int last = call_.batch->positions[next_->first_token];
    const int next_position = softmax_.window_begin(last) + g * kGroupTokens;
    if (next_position > last) return;
    Context(call_, next_->seq, next_->kv_head).prefetch_group(next_position);
  }

  // The output so far, before a chunk is added.
  void scale_out(const RowTile& tile) const {
    for (int r = 0; r < tile.count; r++) {
      if (tile.kept[r] == 1.0f) continue;
      float* out = scratch_.out[tile.index] + r * dim_;
      const F32x16 kept = broadcast(tile.kept[r]);
      for (int i = 0; i < dim_; i += kLanes) store(out + i, mul(load(out + i), kept));
    }
  }

  void finish_tile(const AttentionItem& item, const RowTile& tile) {
    for (int r = 0; r < tile.count; r++) {
      const int row = tile.first + r;
      const int token = item.first_token + row / group_;
      const int64_t at = token * call_.out_stride + head_offset(item, row);
      const float* values = scratch_.out[tile.index] + r * dim_;
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
  TileSoftmax<Products> softmax_;
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
