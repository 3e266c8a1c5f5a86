// Blocks of weights kept as in a GGUF file, expanded panel after panel ahead of the tiles that
// multiply them. For file_block_feeds.h.
#pragma once

#include "file_blocks_expand.h"
#include "gemm_blocks.h"

namespace chairlift::CHAIRLIFT_ISA {

// Panels of one matrix as a member works on them; `next`: the panel it will probably want after
// this one, or null; `ahead`: where it will read weights then, in this matrix or another.
struct PanelOrder {
  const std::byte* panel = nullptr;
  const std::byte* next = nullptr;
  const std::byte* ahead = nullptr;

  PanelOrder() = default;
  PanelOrder(const PackedMatrix& weights, const GemmBlock& block)
      : panel(weights.panel(block.panel)), ahead(block.ahead) {
    if (ahead >= weights.data && ahead < weights.data + weights.bytes()) next = ahead;
  }
};

// A block to be expanded group by group between other instructions; each group fetches its share
// of the memory that will be needed some way ahead.
template <class Block, int kLines>
struct FetchingBlock {
  Block block;
  const std::byte* ahead;

  template <int kGroup>
  CHAIRLIFT_INLINE void expand(bf16* to) const {
    constexpr int kFirst = kLines * kGroup / kFeatureGroups;
    constexpr int kEnd = kLines * (kGroup + 1) / kFeatureGroups;
#pragma GCC unroll 4
    for (int i = kFirst; i < kEnd; i++) __builtin_prefetch(ahead + 64 * i, 0, 2);
    block.template expand<kGroup>(to);
  }
};

// Where no block is left.
struct NoBlock {
  template <int>
  CHAIRLIFT_INLINE void expand(bf16*) const {}
};

// Takes the blocks of a panel from front to back.
template <WeightFormat kFormat>
class BlockReader {
 public:
  explicit BlockReader(const PackedMatrix& weights)
      : panel_bytes_(static_cast<int64_t>(weights.panel_bytes())),
        num_blocks_(weights.in_features / kFileBlock),
        fetch_distance_(panel_bytes_ < kFetchDistance ? panel_bytes_ : kFetchDistance) {}

  int num_blocks() const { return num_blocks_; }
  bool at_end() const { return num_left_ == 0; }
  void open(const std::byte* panel) {
    cursor_ = BlockCursor<kFormat>(panel);
    num_left_ = num_blocks_;
    fetched_ = panel + fetch_distance_;
    end_ = panel + panel_bytes_;
  }
  // `ahead`: where to go on fetching behind the panel's end.
  CHAIRLIFT_INLINE auto take(const std::byte* ahead) {
    const std::byte* fetched = fetched_ < end_ ? fetched_ : ahead + (fetched_ - end_);
    const BlockCursor<kFormat> at = cursor_;
    fetched_ += kBytes;
    cursor_.advance();
    num_left_--;
    // Made where it is used: compilers would copy the scales one by one.
    return FetchingBlock<decltype(at.block()), kBytes / 64>{at.block(), fetched};
  }

 private:
  static constexpr FileLayout kLayout = file_layout(kFormat);
  // A block with its share of the header, rounded up: lines fetched twice do no harm.
  static constexpr int kBytes =
      (kLayout.group_bytes() / kLayout.group_blocks + 63) / 64 * 64;
  static constexpr int64_t kFetchDistance = 8192 / kBytes * kBytes;

  const int64_t panel_bytes_;
  const int num_blocks_;
  const int64_t fetch_distance_;
  BlockCursor<kFormat> cursor_;
  int num_left_ = 0;
  const std::byte* fetched_ = nullptr;
  const std::byte* end_ = nullptr;
};

}  // namespace chairlift::CHAIRLIFT_ISA
