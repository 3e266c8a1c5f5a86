// Finding the K and V groups of a stretch of context. Part of attention_isa.cpp.
//
// A group of 16 tokens aligned to absolute positions is used where it lies in the pool if the block
// size allows. It is gathered into scratch memory when it spans blocks, and its V is copied when
// some of its tokens are not there yet: stale memory may hold NaN, and 0 * NaN is not 0. int8 knows
// no NaN; there it is the scales that are copied, and those of tokens that are not there are zero.
#pragma once

#include "attention.h"
#include "attention_rope.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// Half-open range of absolute positions.
struct Span {
  int begin, end;
};

// The groups of one chunk, first one first.
struct ChunkGroups {
  int first_position;  // of group 0, a multiple of 16
  int count;
  const std::byte* k[AttentionScratch::kChunkGroups];
  const std::byte* v[AttentionScratch::kChunkGroups];
};

// One (sequence, KV head)'s pages.
class Context {
 public:
  Context(const AttentionCall& call, int seq, int kv_head)
      : layout_(call.kv_layout),
        heads_(call.kv + static_cast<size_t>(kv_head) * call.kv_layout.head_bytes),
        blocks_(call.batch->block_tables +
                static_cast<int64_t>(seq) * call.batch->block_table_stride),
        length_(call.batch->seq_lens[seq]),
        paged_in_groups_(call.kv_layout.block_size % kGroupTokens == 0),
        quantised_(call.kv_layout.shape.type == KvType::int8) {}

  // Groups that hold the tokens of `span`, which lies within one chunk; nothing outside of it is
  // read into a result.
  void find_groups(Span span, AttentionScratch& scratch, ChunkGroups& groups) const {
    groups.first_position = span.begin / kGroupTokens * kGroupTokens;
    groups.count = (span.end - groups.first_position + kGroupTokens - 1) / kGroupTokens;
    for (int i = 0; i < groups.count; i++) {
      const int begin = groups.first_position + i * kGroupTokens;
      if (paged_in_groups_) {
        groups.k[i] = group(begin);
        groups.v[i] = groups.k[i] + layout_.v_offset;
        if (quantised_ || begin + kGroupTokens <= length_) continue;
        copy_present(groups.v[i], length_ - begin, scratch.v_groups[i]);
      } else {
        gather({begin > span.begin ? begin : span.begin,
                begin + kGroupTokens < length_ ? begin + kGroupTokens : length_},
               scratch.k_groups[i], scratch.v_groups[i]);
        groups.k[i] = reinterpret_cast<const std::byte*>(scratch.k_groups[i]);
      }
      groups.v[i] = reinterpret_cast<const std::byte*>(scratch.v_groups[i]);
    }
  }

  // Scales of the tokens of `span`, in the order of its groups; those of others are zero.
  void load_scales(Span span, const ChunkGroups& groups, AttentionScratch& scratch) const {
    for (int i = 0; i < groups.count; i++) {
      const int begin = groups.first_position + i * kGroupTokens;
      const Mask16 wanted = mask_and(first_lanes(span.end - begin),
                                     mask_not(first_lanes(span.begin - begin)));
      alignas(64) bf16 gathered[2 * kGroupTokens] = {};
      const bf16* scales = gathered;
      if (paged_in_groups_) {
        scales = token_slot(begin).scales;
      } else {
        gather_scales({begin > span.begin ? begin : span.begin,
                       begin + kGroupTokens < span.end ? begin + kGroupTokens : span.end},
                      gathered);
      }
      store(scratch.k_scales + i * kGroupTokens, select(wanted, load_bf16(scales), zero()));
      store(scratch.v_scales + i * kGroupTokens,
            select(wanted, load_bf16(scales + kGroupTokens), zero()));
    }
  }

  // Asks for the start of K and V of the group at a position, some time before they are needed.
  // The processor's own prefetchers follow from there, and they have more requests in flight than
  // instructions may have. (Sapphire Rapids, 2026-11-29, 32 decodes at context 1,024, a layer:
  // 1.02 ms for 128 bytes each, 0.98 ms for 256, 0.93 ms for 1,024 in bfloat16; 0.94, 0.82 and
  // 0.75 ms in int8.)
  CHAIRLIFT_INLINE void prefetch_group(int position) const {
    if (!paged_in_groups_) return;
    const int bytes = layout_.group_bytes < 1024 ? static_cast<int>(layout_.group_bytes) : 1024;
    const std::byte* k = group(position);
    const std::byte* v = k + layout_.v_offset;
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(k + i, 0, 2);
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(v + i, 0, 2);
    if (quantised_) __builtin_prefetch(token_slot(position).scales, 0, 2);
  }

 private:
  const std::byte* block(int position) const {
    return heads_ + static_cast<size_t>(blocks_[position / layout_.block_size]) *
                        layout_.block_bytes;
  }
  const std::byte* group(int position) const {
    return block(position) + layout_.k_offset +
           static_cast<size_t>(position % layout_.block_size / kGroupTokens) * layout_.group_bytes;
  }

  SlotPlace token_slot(int position) const {
    return slot_place(layout_, const_cast<std::byte*>(block(position)),
                      position % layout_.block_size);
  }

  void gather_scales(Span span, bf16* out) const {
    for (int position = span.begin; position < span.end; position++) {
      const bf16* scales = token_slot(position).scales;
      out[position % kGroupTokens] = scales[0];
      out[position % kGroupTokens + kGroupTokens] = scales[kGroupTokens];
    }
  }

  // The first `count` tokens of a V group; the others become zero.
  void copy_present(const std::byte* v, int count, float* out) const {
    const bool wide = layout_.shape.type == KvType::float32;
    const int rows = wide ? kGroupTokens : kGroupTokens / 2;  // of 64 bytes, per 16 dimensions
    const int whole = wide ? count : count / 2;
    const uint32_t keep = !wide && count % 2 != 0 ? 0xffffu : 0;  // of the row after these
    for (int column = 0; column < layout_.dim; column += kLanes) {
      for (int row = 0; row < rows; row++, v += 64, out += kLanes) {
        uint32_t words[kLanes];
        std::memcpy(words, v, 64);
        const uint32_t mask = row < whole ? 0xffffffffu : row == whole ? keep : 0;
        for (int i = 0; i < kLanes; i++) words[i] &= mask;
        std::memcpy(out, words, 64);
      }
    }
  }

  // Token by token: for block sizes that are no multiple of 16. Lanes outside `span` become zero.
  void gather(Span span, float* k_out, float* v_out) const {
    std::memset(k_out, 0, layout_.group_bytes);
    std::memset(v_out, 0, layout_.group_bytes);
    KvLayout group_layout = layout_;
    group_layout.k_offset = 0;
    group_layout.v_offset = 0;
    group_layout.full_groups = 1;
    for (int position = span.begin; position < span.end; position++) {
      const SlotPlace from = token_slot(position);
      const int lane = position % kGroupTokens;
      const SlotPlace k = slot_place(group_layout, reinterpret_cast<std::byte*>(k_out), lane);
      const SlotPlace v = slot_place(group_layout, reinterpret_cast<std::byte*>(v_out), lane);
      copy_slot(from, k, v);
    }
  }

  void copy_slot(const SlotPlace& from, const SlotPlace& k, const SlotPlace& v) const {
    const int per_word = values_per_word(layout_.shape.type);
    const int words = layout_.dim / per_word;
    const size_t bytes = static_cast<size_t>(4 / per_word);
    for (int i = 0; i < words; i++) std::memcpy(k.k + i * k.k_step, from.k + i * from.k_step, 4);
    for (int column = 0; column < layout_.dim / kLanes; column++) {
      std::byte* to = v.v + column * v.v_step;
      const std::byte* source = from.v + column * from.v_step;
      for (int i = 0; i < kLanes; i++) std::memcpy(to + 4 * i, source + 4 * i, bytes);
    }
  }

  const KvLayout& layout_;
  std::byte* heads_;
  const int32_t* blocks_;
  int length_;
  bool paged_in_groups_;
  bool quantised_;
};

}  // namespace chairlift::CHAIRLIFT_ISA
