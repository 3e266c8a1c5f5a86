// Expanded blocks ahead of the tiles that multiply them. For gemm_file_amx.h.
//
// A feed gives the blocks of a panel in turn as next(), and take() one to expand meanwhile.
#pragma once

#include "file_block_reader.h"

namespace chairlift::CHAIRLIFT_ISA {

// For one pass over each panel: blocks are used once, out of a small ring in the L1 cache.
template <WeightFormat kFormat>
class RingFeed {
 public:
  static constexpr bool kFromL2 = false;

  RingFeed(const PackedMatrix& weights, std::byte* ring) : reader_(weights), ring_(ring) {}

  void begin_panel(const PanelOrder& order) {
    order_ = order;
    if (opened_ == order.panel) return;  // its first blocks are in the ring already
    open(order.panel);
    used_ = num_taken_ = 0;
    const int lead = reader_.num_blocks() < kLead ? reader_.num_blocks() : kLead;
    while (num_taken_ < lead) {
      bf16* to = next_slot();
      expand_groups(reader_.take(order_.ahead), to);
    }
  }

  // Expanded weights of the panel's next block.
  CHAIRLIFT_INLINE const std::byte* next() { return slot(used_++); }
  // Calls body(block, to) with a block to expand meanwhile.
  template <class Body>
  CHAIRLIFT_INLINE void take(Body body) {
    if (reader_.at_end() && order_.next != nullptr) {
      open(order_.next);
      order_.next = nullptr;
    }
    if (reader_.at_end()) return body(NoBlock{}, nullptr);
    bf16* to = next_slot();
    body(reader_.take(order_.ahead), to);
  }

 private:
  static constexpr int kLead = 3, kSlots = 4;
  static_assert(kSlots * kExpandedBlockBytes <= kMinExpandedBytes);

  void open(const std::byte* panel) {
    opened_ = panel;
    reader_.open(panel);
  }
  CHAIRLIFT_INLINE std::byte* slot(int64_t block) const {
    return ring_ + block % kSlots * kExpandedBlockBytes;
  }
  CHAIRLIFT_INLINE bf16* next_slot() { return reinterpret_cast<bf16*>(slot(num_taken_++)); }

  BlockReader<kFormat> reader_;
  std::byte* const ring_;
  PanelOrder order_;
  const std::byte* opened_ = nullptr;
  int64_t used_ = 0, num_taken_ = 0;
};

// For several passes over each panel, during which the next one is expanded.
template <WeightFormat kFormat>
class PanelFeed {
 public:
  static constexpr bool kFromL2 = true;

  PanelFeed(const PackedMatrix& weights, std::byte* two_panels)
      : reader_(weights),
        current_(two_panels),
        next_(two_panels + reader_.num_blocks() * kExpandedBlockBytes) {}

  void begin_panel(const PanelOrder& order, int num_passes) {
    order_ = order;
    interval_ = num_passes < kMaxInterval ? num_passes : kMaxInterval;
    if (opened_ != order.panel) open(order.panel);
    while (!reader_.at_end()) {
      bf16* to = next_slot();
      expand_groups(reader_.take(order_.ahead), to);
    }
    std::byte* used = current_;
    current_ = next_;
    next_ = used;
    opened_ = nullptr;
    if (order.next != nullptr) open(order.next);
  }
  void begin_pass() { used_ = 0; }

  CHAIRLIFT_INLINE const std::byte* next() { return current_ + kExpandedBlockBytes * used_++; }
  template <class Body>
  CHAIRLIFT_INLINE void take(Body body) {
    if (used_ % interval_ != 0 || reader_.at_end()) return body(NoBlock{}, nullptr);
    bf16* to = next_slot();
    body(reader_.take(order_.ahead), to);
  }

 private:
  // Over how many passes the next panel is spread at the most.
  static constexpr int kMaxInterval = 4;

  void open(const std::byte* panel) {
    opened_ = panel;
    num_taken_ = 0;
    reader_.open(panel);
  }
  CHAIRLIFT_INLINE bf16* next_slot() {
    return reinterpret_cast<bf16*>(next_ + kExpandedBlockBytes * num_taken_++);
  }

  BlockReader<kFormat> reader_;
  std::byte* current_;
  std::byte* next_;
  PanelOrder order_;
  const std::byte* opened_ = nullptr;
  int64_t num_taken_ = 0, used_ = 0;
  int interval_ = 1;
};

}  // namespace chairlift::CHAIRLIFT_ISA
