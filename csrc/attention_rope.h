// Rotating and normalising heads, and writing K and V into the cache. Part of attention_isa.cpp.
//
// A head is rotated in rotate-half order: dimensions i and i + head_dim / 2 form a pair that turns
// by position * inv_freq[i] (Su et al. 2021, "RoFormer"). q and k may go through RMSNorm before
// (Qwen3). All of it is float32; only the result is rounded to the compute dtype.
#pragma once

#include "attention.h"
#include "attention_int8.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// Lanes [i, i + 16) of a head; those behind head_dim are zero.
static CHAIRLIFT_INLINE F32x16 head_lanes(const float* head, int i, int head_dim) {
  return i + kLanes <= head_dim ? load(head + i) : load_partial(head + i, head_dim - i);
}

// 1 / sqrt(mean(head^2) + eps).
static inline float inverse_norm(const float* head, float eps, int head_dim) {
  F32x16 sum = zero();
  for (int i = 0; i < head_dim; i += kLanes) {
    const F32x16 v = head_lanes(head, i, head_dim);
    sum = fmadd(v, v, sum);
  }
  const float mean = reduce_add(sum) / static_cast<float>(head_dim);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

// One head on its way from the projection's output to where it is used.
struct HeadRotation {
  const float* head;
  const float* norm;  // RMSNorm weights, or null
  float inverse;      // of the head's norm
  const float* cos;   // [head_dim / 2]
  const float* sin;
  int half;

  // Lanes [i, i + 16) of both halves, turned. Not fused: the same products and sums on every level.
  CHAIRLIFT_INLINE void turn(int i, int count, F32x16& first, F32x16& second) const {
    const auto lanes = [&](const float* p) __attribute__((always_inline)) {
      return count == kLanes ? load(p + i) : load_partial(p + i, count);
    };
    F32x16 a = lanes(head), b = lanes(head + half);
    if (norm != nullptr) {
      a = mul(mul(a, broadcast(inverse)), lanes(norm));
      b = mul(mul(b, broadcast(inverse)), lanes(norm + half));
    }
    const F32x16 c = lanes(cos), s = lanes(sin);
    first = sub(mul(a, c), mul(b, s));
    second = add(mul(b, c), mul(a, s));
  }
};

// Normalises (if `norm`) and rotates one head and hands it over as out(i, 16 lanes from i on), the
// lanes behind head_dim zero.
template <class Out>
static CHAIRLIFT_INLINE void rotate_head(const AttentionCall& call, const float* head,
                                         const float* norm, int position, Out&& out) {
  const int head_dim = call.shape.head_dim, half = head_dim / 2;
  const int64_t row = static_cast<int64_t>(position) * half;
  const HeadRotation rotation = {
      head, norm, norm == nullptr ? 1.0f : inverse_norm(head, call.norm_eps, head_dim),
      call.rope_cos + row, call.rope_sin + row, half};
  F32x16 first, second;
  if (half % kLanes == 0) {
    for (int i = 0; i < half; i += kLanes) {
      rotation.turn(i, kLanes, first, second);
      out(i, first);
      out(half + i, second);
    }
    return;
  }
  alignas(64) float turned[kMaxHeadDim] = {};
  for (int i = 0; i < half; i += kLanes) {
    const int count = half - i < kLanes ? half - i : kLanes;
    rotation.turn(i, count, first, second);
    store_partial(turned + i, first, count);
    store_partial(turned + half + i, second, count);
  }
  for (int i = 0; i < call.kv_layout.dim; i += kLanes) out(i, load(turned + i));
}

// Where one token's K and V are inside a (block, head).
struct SlotPlace {
  std::byte* k;  // first word: a float, two bfloat16 or four int8
  int k_step;    // bytes from word to word
  std::byte* v;  // first of 16 elements, which are 4 bytes apart
  int v_step;    // bytes to the next 16
  bf16* scales;  // of K, and 16 further that of V; int8 only
};

static inline SlotPlace slot_place(const KvLayout& layout, std::byte* head, int offset) {
  const int group = offset / kGroupTokens, lane = offset % kGroupTokens;
  const int width = group < layout.full_groups ? kGroupTokens : layout.tail_tokens;
  const int per_word = values_per_word(layout.shape.type);
  std::byte* k = head + layout.k_offset + static_cast<size_t>(group) * layout.group_bytes;
  std::byte* v = k + layout.v_offset + lane / per_word * 64 + lane % per_word * (4 / per_word);
  return {k + lane * 4, width * 4, v, width / per_word * 64,
          reinterpret_cast<bf16*>(head + group * 64) + lane};
}

// 16 values of K from dimension i on, word by word.
static CHAIRLIFT_INLINE void store_k(const SlotPlace& place, KvType type, int i, F32x16 v) {
  alignas(64) float words[kLanes];
  int count = kLanes, first = i;
  if (type == KvType::bfloat16) {
    store_bf16(reinterpret_cast<bf16*>(words), v);
    count /= 2;
    first /= 2;
  } else {
    store(words, v);
  }
  std::byte* out = place.k + first * place.k_step;
  for (int j = 0; j < count; j++) std::memcpy(out + j * place.k_step, words + j, 4);
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

// 16 values of V from dimension i on.
static CHAIRLIFT_INLINE void store_v(const SlotPlace& place, KvType type, int i, F32x16 v) {
  std::byte* out = place.v + i / kLanes * place.v_step;
  if (type == KvType::float32) {
    store(reinterpret_cast<float*>(out), v);
  } else {
    store_halves(out, v);
  }
}

// 16 bytes into every fourth byte from `out` on; the others may be written by other threads.
static CHAIRLIFT_INLINE void store_quarters(std::byte* out, const int8_t* bytes) {
#if defined(__AVX512BW__)
  const __m512i words =
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
  _mm512_mask_storeu_epi8(out, 0x1111111111111111, words);
#else
  for (int i = 0; i < kLanes; i++) std::memcpy(out + 4 * i, bytes + i, 1);
#endif
}

// One token's K and V of a head as int8, with their scales.
static inline void store_quantised(const AttentionCall& call, const SlotPlace& place, int token,
                                   const float* k, const float* v) {
  const int dim = call.kv_layout.dim;
  alignas(64) float head[kMaxHeadDim];
  alignas(64) int8_t bytes[kLanes];
  rotate_head(call, k, call.k_norm, call.batch->positions[token],
              [&](int i, F32x16 lanes) { store(head + i, lanes); });
  hadamard(head, dim);
  place.scales[0] = head_scale(head, dim);
  float inverse = inverse_of_scale(place.scales[0]);
  for (int i = 0; i < dim; i += kLanes) {
    store_bytes(bytes, to_whole(load(head + i), inverse), 0);
    std::byte* out = place.k + i / 4 * place.k_step;
    for (int j = 0; j < kLanes / 4; j++) std::memcpy(out + j * place.k_step, bytes + 4 * j, 4);
  }
  for (int i = 0; i < dim; i += kLanes) store(head + i, head_lanes(v, i, call.shape.head_dim));
  place.scales[kGroupTokens] = head_scale(head, dim);
  inverse = inverse_of_scale(place.scales[kGroupTokens]);
  for (int i = 0; i < dim; i += kLanes) {
    store_bytes(bytes, to_whole(load(head + i), inverse), 0);
    store_quarters(place.v + i / kLanes * place.v_step, bytes);
  }
}

// Where a token's K and V of one head belong.
static inline SlotPlace token_place(const AttentionCall& call, int token, int kv_head) {
  const KvLayout& layout = call.kv_layout;
  const int64_t slot = call.batch->slot_mapping[token];
  std::byte* head = call.kv + static_cast<size_t>(slot / layout.block_size) * layout.block_bytes +
                    static_cast<size_t>(kv_head) * layout.head_bytes;
  return slot_place(layout, head, static_cast<int>(slot % layout.block_size));
}

// K and V of one token and KV head, from the projection's output into the cache.
static inline void store_token(const AttentionCall& call, int token, int kv_head) {
  const AttentionShape& shape = call.shape;
  const KvType type = call.kv_layout.shape.type;
  const SlotPlace place = token_place(call, token, kv_head);
  const float* row = call.qkv + token * call.qkv_stride;
  const float* k = row + (shape.num_heads + kv_head) * shape.head_dim;
  const float* v = k + shape.num_kv_heads * shape.head_dim;
  if (type == KvType::int8) return store_quantised(call, place, token, k, v);
  rotate_head(call, k, call.k_norm, call.batch->positions[token],
              [&](int i, F32x16 lanes) { store_k(place, type, i, lanes); });
  for (int i = 0; i < call.kv_layout.dim; i += kLanes) {
    store_v(place, type, i, head_lanes(v, i, shape.head_dim));
  }
}

// Asks for the lines that store_token will write: each word of K is on a line of its own.
static CHAIRLIFT_INLINE void prefetch_token(const AttentionCall& call, int token, int kv_head) {
  const SlotPlace place = token_place(call, token, kv_head);
  const int steps = call.kv_layout.dim / values_per_word(call.kv_layout.shape.type);
  for (int i = 0; i < steps; i++) __builtin_prefetch(place.k + i * place.k_step, 1, 2);
  for (int i = 0; i < call.kv_layout.dim / kLanes; i++) {
    __builtin_prefetch(place.v + i * place.v_step, 1, 2);
  }
  if (call.kv_layout.k_offset != 0) __builtin_prefetch(place.scales, 1, 2);
}

static void rope_and_store(const AttentionCall& call, int first, int last) {
  for (int token = first; token < last; token++) {
    for (int head = 0; head < call.shape.num_kv_heads; head++) store_token(call, token, head);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
