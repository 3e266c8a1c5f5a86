// The paged KV cache: one pool of blocks, shared by all sequences, in the kernels' own layout.
//
// A block holds `block_size` tokens of every KV head. Within one (block, head) the tokens lie in
// groups of 16, so that both products of attention read whole vectors and no sum runs across
// lanes; it is AMX's B-tile layout and that of the dot products of two bfloat16 or four int8 at
// once. With p values to a 32-bit word (1 of float32, 2 of bfloat16, 4 of int8):
//
//     K group  [dim / p][16 tokens][p dims]
//     V group  [dim / 16][16 / p][16 dims][p tokens]
//
// dim is head_dim rounded up to 16; the writer keeps the padding at zero. All K groups of a
// (block, head) come first, then all its V groups, so that a product reads memory from front to
// back. When block_size is no multiple of 16 the last group is narrower: block_size % 16 tokens,
// rounded up to a multiple of p (and of 2).
//
// int8 values have a scale for each token's K, and one for its V, in every head: before the K
// groups of a (block, head) lies a line of 64 bytes for each group, with 16 scales of K and 16 of V
// in bfloat16. K is kept rotated, see attention_int8.h.
//
// Paging: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", section 4.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chairlift {

enum class ElementType { float32, bfloat16 };

constexpr size_t element_bytes(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

enum class KvType { float32, bfloat16, int8 };

// Values that share a 32-bit word.
constexpr int values_per_word(KvType type) {
  return type == KvType::float32 ? 1 : type == KvType::bfloat16 ? 2 : 4;
}
constexpr size_t kv_value_bytes(KvType type) { return 4 / size_t(values_per_word(type)); }
constexpr KvType plain_kv_type(ElementType type) {
  return type == ElementType::float32 ? KvType::float32 : KvType::bfloat16;
}

// "float32", "bfloat16" or "int8"; "auto" is the compute dtype's own. Throws std::invalid_argument.
KvType parse_kv_type(std::string_view name, ElementType compute_type);

constexpr int kGroupTokens = 16;  // tokens stored together
constexpr int kMaxHeadDim = 256;

// What decides the size of a cached token; head_dim is even and at most kMaxHeadDim.
struct KvShape {
  int num_layers;
  int num_kv_heads;
  int head_dim;
  KvType type;
};

// Where things lie inside the pool of one layer; plain numbers, copied freely.
struct KvLayout {
  KvShape shape;
  int block_size;     // tokens per block, at least 1
  int dim;            // head_dim rounded up to 16
  int full_groups;    // groups of 16 tokens per block
  int tail_tokens;    // tokens stored in the narrower last group, even; 0: there is none
  size_t group_bytes; // of a full group's K, and of its V
  size_t k_offset;    // from the start of a (block, head) to its first K group: bytes of scales
  size_t v_offset;    // from the first K group to the first V group
  size_t head_bytes;  // one (block, head)
  size_t block_bytes; // one block of one layer

  // Throws std::invalid_argument naming the value out of range.
  KvLayout(const KvShape& shape, int block_size);

  // Bytes of one block in all layers: what a memory budget is divided by.
  size_t block_bytes_all_layers() const { return block_bytes * size_t(shape.num_layers); }
};

// Owns the memory of the pool. Pages are asked for as huge pages and become real when first
// written; they are zero until then. Never read or written here: the kernels do that.
class KvCache {
 public:
  // Throws std::invalid_argument for shapes out of range, std::bad_alloc when the address space
  // cannot be had.
  KvCache(const KvShape& shape, int num_blocks, int block_size);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }
  size_t bytes() const { return bytes_; }

  // Start of block 0 of a layer; blocks follow each other at layout().block_bytes.
  std::byte* layer(int index) const { return memory_ + layer_bytes_ * size_t(index); }

 private:
  KvLayout layout_;
  int num_blocks_;
  size_t layer_bytes_;
  size_t bytes_;
  std::byte* memory_;
};

}  // namespace chairlift
