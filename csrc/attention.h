// Attention of a flat batch over the paged KV cache, with RoPE and the KV write before it.
//
// One call serves decodes and prefill chunks together. Query heads that share a KV head are rows
// of the same small matrix, so each load of K and V serves all of them, and up to 32 rows (query
// tokens x heads of the group) are worked on at once, in tiles of 16.
//
// For one row the context is walked in chunks of kChunkTokens aligned to absolute positions, with
// the running maximum m, sum l and output o of online softmax:
//
//     s_j = q . k_j        m' = max(m, max_j s_j)      p_j = 2^(c (s_j - m'))   c = scale / ln 2
//     l'  = 2^(c (m - m')) l + sum_j p_j               o'  = 2^(c (m - m')) o + sum_j p_j v_j
//
// and o / l is the result. Every sum has an order fixed by positions and instruction set alone;
// masked tokens contribute an exact zero. So a row's bits do not depend on the block size, on how
// its prompt was cut into chunks, on its neighbours or on the number of threads.
//
// Sources: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al.
// 2022, "FlashAttention", section 3.1; Kwon et al. 2023, "PagedAttention", section 4.1; Su et al.
// 2021, "RoFormer" (the rotation), in the rotate-half order of the Hugging Face models.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "isa.h"
#include "kv_cache.h"

namespace chairlift {

constexpr int kChunkTokens = 512;  // online softmax rescales once per chunk
constexpr int kTileRows = 16;      // rows worked on at once: an AMX tile's
constexpr int kItemTiles = 2;      // tiles that share what is loaded of K and V
constexpr int kItemRows = kItemTiles * kTileRows;
constexpr int kWeightBits = 15;    // of softmax weights over int8 V

// The flat batch of one step: T tokens of S sequences end to end; all pointers are borrowed.
// The new tokens of sequence s have the flat indices [query_start_loc[s], query_start_loc[s + 1])
// and are the last ones of its seq_lens[s] tokens.
struct FlatBatch {
  int num_tokens;                  // T
  int num_seqs;                    // S
  const int32_t* positions;        // [T]
  const int32_t* query_start_loc;  // [S + 1]
  const int32_t* seq_lens;         // [S], new tokens included
  const int32_t* block_tables;     // [S, block_table_stride]; read up to the last used block
  int block_table_stride;
  const int64_t* slot_mapping;     // [T] block * block_size + offset: where K and V are written
};

// Throws std::invalid_argument, naming field, value and bound, unless kernels may run on the
// batch: every sequence has new tokens, positions and slots are those that seq_lens and block
// tables imply, and every block in use is inside the pool. Takes time proportional to tokens and
// blocks.
void check_flat_batch(const FlatBatch& batch, int block_size, int num_blocks);

struct AttentionShape {
  int num_heads;  // a multiple of num_kv_heads
  int num_kv_heads;
  int head_dim;   // even, at most kMaxHeadDim
  ElementType type;
  float scale;    // usually head_dim ** -0.5
  int group() const { return num_heads / num_kv_heads; }
};

// cos and sin of every position reached so far, times the attention factor; grows on demand.
class RopeTable {
 public:
  RopeTable(std::span<const double> inv_freq, double attention_factor);
  // Makes rows [0, num_positions) available. Not to be called while kernels run.
  void reserve(int num_positions);
  // [num_positions, head_dim / 2] each; moved by reserve().
  const float* cos() const { return cos_.data(); }
  const float* sin() const { return sin_.data(); }

 private:
  std::vector<double> inv_freq_;  // [head_dim / 2] radians per position
  double attention_factor_;
  size_t half_;
  int num_positions_ = 0;
  std::vector<float> cos_, sin_;
};

// Some new tokens of one sequence for one KV head: the unit that a thread claims.
struct AttentionItem {
  int32_t seq;
  int32_t kv_head;
  int32_t first_token;  // flat index
  int32_t num_tokens;
};

// How one step's attention is cut into items; made once a step, used by every layer. What kernels
// call is not inline: code of theirs must not be merged with the rest's (see simd.h).
class AttentionPlan {
 public:
  AttentionPlan(const AttentionShape& shape, int num_layers);
  // Replaces the items and rewinds the claims of all layers. One thread, before the region.
  void build(const FlatBatch& batch);
  // The next unclaimed item of a layer, or null when there is none left.
  const AttentionItem* claim(int layer);
  // Whether the items themselves rotate and store their tokens. True when all new tokens of each
  // sequence are in one item (decodes): then nobody else reads what the item writes, and
  // rope_and_store with its barrier is not needed.
  bool fuses_rope() const;

 private:
  AttentionShape shape_;
  int num_layers_;
  bool fuses_rope_ = false;
  std::vector<AttentionItem> items_;
  std::unique_ptr<std::atomic<int>[]> claimed_;  // [num_layers]
};

// One layer's attention: everything its kernels read and write. All pointers are borrowed.
struct AttentionCall {
  AttentionShape shape;
  KvLayout kv_layout;
  std::byte* kv;                 // KvCache::layer(i)
  const FlatBatch* batch;
  const float* rope_cos;         // RopeTable, reserved beyond the largest position
  const float* rope_sin;
  AttentionPlan* plan;
  int layer;                     // whose claims to take
  int sliding_window;            // tokens a row sees, itself included; 0: all
  const float* qkv;              // [T, qkv_stride]: q heads, k heads, v heads; biases added
  int64_t qkv_stride;
  const float* q_norm;           // [head_dim] RMSNorm weights over each head, or null
  const float* k_norm;           // [head_dim], or null
  float norm_eps;
  void* out;                     // [T, out_stride] compute dtype
  int64_t out_stride;            // elements
};

// One thread's working memory, about 1.3 MB; a page that is never needed is never touched. Make it
// with std::make_unique_for_overwrite.
struct alignas(64) AttentionScratch {
  static constexpr int kChunkGroups = kChunkTokens / kGroupTokens;
  float q[kItemTiles][kTileRows * kMaxHeadDim];             // rotated queries, row by row
  // [tile][group][row][token]; softmax puts weights where scores were. One group may lead.
  float scores[kItemTiles][(kChunkGroups + 1) * kTileRows * kGroupTokens];
  float out[kItemTiles][kTileRows * kMaxHeadDim];           // running o, row by row
  float k_scales[kChunkTokens], v_scales[kChunkTokens];     // of int8, token by token
  std::byte v_tiles[kChunkTokens * kMaxHeadDim];            // V, 64 bytes of tokens to a row
  std::byte k_ends[kChunkGroups * 1024];                    // K that does not fill a tile
  float k_groups[kChunkGroups][kGroupTokens * kMaxHeadDim];  // groups that had to be gathered
  float v_groups[kChunkGroups][kGroupTokens * kMaxHeadDim];
};

// One instruction set's kernels.
struct AttentionKernels {
  // Normalises (if k_norm), rotates and rounds k of tokens [first, last) into the cache, and stores
  // their v. The threads share out all T rows and meet at a barrier before attend; neither is
  // needed when call.plan->fuses_rope().
  void (*rope_and_store)(const AttentionCall& call, int first, int last);
  // Claims items of call.layer until none is left, normalises and rotates their q, and writes their
  // rows of call.out. All threads of the team call it; a barrier must follow before call.out is
  // read. Leaves AMX tiles released.
  void (*attend)(const AttentionCall& call, AttentionScratch& scratch);
};

CHAIRLIFT_DECLARE_KERNELS(AttentionKernels, attention_kernels)

}  // namespace chairlift
