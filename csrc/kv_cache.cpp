#include "kv_cache.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>
#include <string>

namespace chairlift {
namespace {

constexpr size_t kLine = 64;                // cache line: groups and heads start on one
constexpr size_t kHugePage = size_t(2) << 20;

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int checked(const char* name, int value, int low, int high) {
  if (value < low || value > high) {
    throw std::invalid_argument(std::string(name) + " must be between " + std::to_string(low) +
                                " and " + std::to_string(high) + ", got " + std::to_string(value));
  }
  return value;
}

constexpr int kMany = 1 << 30;
// Tiles of 64 dimensions may be read where a K group has fewer; what is there does not count.
constexpr size_t kReadBehind = 1024;

}  // namespace

KvType parse_kv_type(std::string_view name, ElementType compute_type) {
  if (name == "auto") return plain_kv_type(compute_type);
  if (name == "float32") return KvType::float32;
  if (name == "bfloat16") return KvType::bfloat16;
  if (name == "int8") return KvType::int8;
  throw std::invalid_argument("kv_cache_dtype must be auto, float32, bfloat16 or int8, got " +
                              std::string(name));
}

KvLayout::KvLayout(const KvShape& kv_shape, int tokens_per_block)
    : shape(kv_shape), block_size(checked("block_size", tokens_per_block, 1, 1 << 20)) {
  checked("num_layers", shape.num_layers, 1, kMany);
  checked("num_kv_heads", shape.num_kv_heads, 1, kMany);
  checked("head_dim", shape.head_dim, 2, kMaxHeadDim);
  if (shape.head_dim % 2 != 0) {
    throw std::invalid_argument("head_dim must be even, got " + std::to_string(shape.head_dim));
  }
  dim = int(round_up(size_t(shape.head_dim), 16));
  full_groups = block_size / kGroupTokens;
  const int per_word = values_per_word(shape.type);
  tail_tokens = int(round_up(size_t(block_size % kGroupTokens), size_t(per_word > 2 ? 4 : 2)));
  const size_t token_bytes = size_t(dim) * kv_value_bytes(shape.type);
  group_bytes = token_bytes * kGroupTokens;
  const int groups = full_groups + (tail_tokens > 0);
  k_offset = shape.type == KvType::int8 ? kLine * size_t(groups) : 0;
  v_offset = round_up(group_bytes * size_t(full_groups) + token_bytes * size_t(tail_tokens), kLine);
  head_bytes = k_offset + 2 * v_offset;
  block_bytes = head_bytes * size_t(shape.num_kv_heads);
}

KvCache::KvCache(const KvShape& shape, int num_blocks, int block_size)
    : layout_(shape, block_size), num_blocks_(checked("num_blocks", num_blocks, 1, kMany)) {
  layer_bytes_ = round_up(layout_.block_bytes * size_t(num_blocks) + kReadBehind, kHugePage);
  bytes_ = layer_bytes_ * size_t(shape.num_layers);
  // One huge page more, to align the start: only an aligned range is backed by huge pages.
  const size_t mapped = bytes_ + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::byte* begin = static_cast<std::byte*>(memory);
  memory_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<size_t>(begin), kHugePage));
  if (memory_ > begin) munmap(begin, size_t(memory_ - begin));
  std::byte* end = memory_ + bytes_;
  if (begin + mapped > end) munmap(end, size_t(begin + mapped - end));
  madvise(memory_, bytes_, MADV_HUGEPAGE);  // advice: its refusal costs speed, nothing else
}

KvCache::~KvCache() { munmap(memory_, bytes_); }

}  // namespace chairlift
