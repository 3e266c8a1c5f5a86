// A second tier for KV blocks: memory or a file that holds what preempted requests had computed.
//
// A slot holds one block of all layers, layer after layer, in the layout of the pool: moving a
// block there and back leaves its bits as they were. Kwon et al. 2023, "PagedAttention", section
// 4.5 (swapping).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kv_cache.h"
#include "thread_team.h"

namespace chairlift {

class SwapSpace {
 public:
  // Slots for `num_slots` blocks of `cache`, which must outlive this. `path` empty: memory, which
  // becomes real as it is written. Otherwise a new file at `path`, its space reserved at once; its
  // name is removed before this returns, so that nothing is left behind however the process ends.
  // Throws std::invalid_argument for a number out of range, std::system_error when memory, file or
  // space cannot be had.
  SwapSpace(KvCache& cache, int num_slots, const std::string& path);
  ~SwapSpace();
  SwapSpace(const SwapSpace&) = delete;
  SwapSpace& operator=(const SwapSpace&) = delete;

  // Copies blocks[i] of the pool into slots[i], or back. Both have the same size, and no
  // destination comes twice; the team shares the work. Throws std::invalid_argument, and copies
  // nothing, if ids are out of range or the lists do not fit together.
  void copy_out(ThreadTeam& team, std::span<const int32_t> blocks,
                std::span<const int32_t> slots) const;
  void copy_in(ThreadTeam& team, std::span<const int32_t> slots,
               std::span<const int32_t> blocks) const;

 private:
  std::byte* slot(int32_t index, int layer) const;
  std::byte* block(int32_t index, int layer) const;
  // copy(index, layer) for each of `num_blocks` blocks in every layer, shared out over the team.
  template <class Copy>
  void for_each_layer(ThreadTeam& team, size_t num_blocks, const Copy& copy) const;
  void check(std::span<const int32_t> blocks, std::span<const int32_t> slots) const;

  KvCache& cache_;
  int num_slots_;
  size_t bytes_;
  std::byte* memory_;
};

}  // namespace chairlift
