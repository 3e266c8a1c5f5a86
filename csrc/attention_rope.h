// Rotating and normalising heads, and writing K and V into the cache. Part of attention_isa.cpp.
//
// A head is rotated in rotate-half order: dimensions i and i + head_dim / 2 form a pair that turns
// by position * inv_freq[i] (Su et al. 2021, "RoFormer"). q and k may go through RMSNorm before
// (Qwen3). All of it is float32; only the result is rounded to the compute dtype.
#pragma once

#include "attention.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// One head's values, padded with zeros to whole vectors.
struct HeadBuffer {
  alignas(64) float values[kMaxHeadDim];
};

static CHAIRLIFT_INLINE void copy_head(const float* head, int head_dim, HeadBuffer& out) {
  int i = 0;
  for (; i + kLanes <= head_dim; i += kLanes) store(out.values + i, load(head + i));
  if (i < head_dim) store(out.values + i, load_partial(head + i, head_dim - i));
}

// values * weight / sqrt(mean(values^2) + eps), in place.
static inline void normalize_head(HeadBuffer& head, const float* weight, float eps, int head_dim) {
  F32x16 sum = zero();
  for (int i = 0; i < head_dim; i += kLanes) {
    const F32x16 v = load(head.values + i);
    sum = fmadd(v, v, sum);
  }
  const float mean = reduce_add(sum) / static_cast<float>(head_dim);
  const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
  for (int i = 0; i < head_dim; i++) head.values[i] = head.values[i] * inverse * weight[i];
}

// Not fused: the same two products and one sum on every level.
static inline void rotate_head(HeadBuffer& head, const float* cos, const float* sin, int head_dim) {
  const int half = head_dim / 2;
  float* first = head.values;
  float* second = head.values + half;
  const auto turn = [](F32x16& a, F32x16& b, F32x16 c, F32x16 s) {
    const F32x16 turned = sub(mul(a, c), mul(b, s));
    b = add(mul(b, c), mul(a, s));
    a = turned;
  };
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32x16 a = load(first + i), b = load(second + i);
    turn(a, b, load(cos + i), load(sin + i));
    store(first + i, a);
    store(second + i, b);
  }
  if (i == half) return;
  const int rest = half - i;
  F32x16 a = load_partial(first + i, rest), b = load_partial(second + i, rest);
  turn(a, b, load_partial(cos + i, rest), load_partial(sin + i, rest));
  store_partial(first + i, a, rest);
  store_partial(second + i, b, rest);
}

// Takes one head from the projection's output: normalised (if `norm`), rotated, padded with zeros.
static inline void rotated_head(const AttentionCall& call, const float* head, const float* norm,
                                int position, HeadBuffer& out) {
  const int head_dim = call.shape.head_dim;
  const int64_t row = static_cast<int64_t>(position) * (head_dim / 2);
  copy_head(head, head_dim, out);
  if (norm != nullptr) normalize_head(out, norm, call.norm_eps, head_dim);
  rotate_head(out, call.rope_cos + row, call.rope_sin + row, head_dim);
}

// Where one token's K and V are inside a (block, head).
struct SlotPlace {
  std::byte* k;  // first word: a float, or a pair of bfloat16
  int k_step;    // bytes from word to word
  std::byte* v;  // first of 16 elements, which are 4 bytes apart
  int v_step;    // bytes to the next 16
};

static inline SlotPlace slot_place(const KvLayout& layout, std::byte* head, int offset) {
  const int group = offset / kGroupTokens, lane = offset % kGroupTokens;
  const int width = group < layout.full_groups ? kGroupTokens : layout.tail_tokens;
  std::byte* k = head + static_cast<size_t>(group) * layout.group_bytes;
  std::byte* v = k + layout.v_offset;
  if (layout.shape.type == ElementType::float32) {
    return {k + lane * 4, width * 4, v + lane * 64, width * 64};
  }
  return {k + lane * 4, width * 4, v + lane / 2 * 64 + lane % 2 * 2, width * 32};
}

static inline void store_k(const KvLayout& layout, const SlotPlace& place, const HeadBuffer& head) {
  alignas(64) bf16 narrow[kMaxHeadDim];
  const void* source = head.values;
  int words = layout.dim;
  if (layout.shape.type == ElementType::bfloat16) {
    for (int i = 0; i < layout.dim; i += kLanes) store_bf16(narrow + i, load(head.values + i));
    source = narrow;
    words /= 2;
  }
  const char* word = static_cast<const char*>(source);
  for (int i = 0; i < words; i++) std::memcpy(place.k + i * place.k_step, word + 4 * i, 4);
}

// 16 bfloat16 into one half of 16 pairs, two bytes at a time: another thread may be writing the
// other token of the pair.
static CHAIRLIFT_INLINE void store_halves(std::byte* half, F32x16 v) {
  alignas(64) bf16 narrow[kLanes];
  store_bf16(narrow, v);
#if defined(__AVX512BW__)
  const __m512i words = _mm512_cvtepu16_epi32(
      _mm256_load_si256(reinterpret_cast<const __m256i*>(narrow)));
  _mm512_mask_storeu_epi16(half, 0x55555555, words);
#else
  for (int i = 0; i < kLanes; i++) std::memcpy(half + 4 * i, narrow + i, 2);
#endif
}

static inline void store_v(const KvLayout& layout, const SlotPlace& place, const HeadBuffer& head) {
  for (int i = 0; i < layout.dim; i += kLanes) {
    std::byte* out = place.v + i / kLanes * place.v_step;
    const F32x16 v = load(head.values + i);
    if (layout.shape.type == ElementType::float32) {
      store(reinterpret_cast<float*>(out), v);
    } else {
      store_halves(out, v);
    }
  }
}

// K and V of one token and KV head, from the projection's output into the cache.
static inline void store_token(const AttentionCall& call, int token, int kv_head) {
  const KvLayout& layout = call.kv_layout;
  const AttentionShape& shape = call.shape;
  const int64_t slot = call.batch->slot_mapping[token];
  std::byte* head = call.kv + static_cast<size_t>(slot / layout.block_size) * layout.block_bytes +
                    static_cast<size_t>(kv_head) * layout.head_bytes;
  const SlotPlace place = slot_place(layout, head, static_cast<int>(slot % layout.block_size));
  const float* row = call.qkv + token * call.qkv_stride;
  const float* k = row + (shape.num_heads + kv_head) * shape.head_dim;
  const float* v = k + shape.num_kv_heads * shape.head_dim;
  HeadBuffer buffer;
  rotated_head(call, k, call.k_norm, call.batch->positions[token], buffer);
  store_k(layout, place, buffer);
  copy_head(v, shape.head_dim, buffer);
  store_v(layout, place, buffer);
}

static void rope_and_store(const AttentionCall& call, int first, int last) {
  for (int token = first; token < last; token++) {
    for (int head = 0; head < call.shape.num_kv_heads; head++) store_token(call, token, head);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
