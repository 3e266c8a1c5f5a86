#include "swap_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace chairlift {
namespace {

constexpr int kMany = 1 << 30;

int checked_slots(int num_slots) {
  if (num_slots < 1 || num_slots > kMany) {
    throw std::invalid_argument("num_blocks of the swap space must be between 1 and " +
                                std::to_string(kMany) + ", got " + std::to_string(num_slots));
  }
  return num_slots;
}

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::system_error(error, std::generic_category(), path);
}

// A file without a name, of `bytes` bytes that are really there: a write to a page without space
// behind it would kill the process.
class UnnamedFile {
 public:
  UnnamedFile(const std::string& path, size_t bytes)
      : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) fail(errno, path);
    unlink(path.c_str());
    const int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
    if (error == 0) return;
    close(descriptor_);
    fail(error, path);
  }
  ~UnnamedFile() { close(descriptor_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::byte* map(size_t bytes, int flags, int descriptor, const std::string& path) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (memory == MAP_FAILED) fail(errno, path);
  return static_cast<std::byte*>(memory);
}

std::byte* map_file(const std::string& path, size_t bytes) {
  const UnnamedFile file(path, bytes);  // the mapping keeps it alive
  return map(bytes, MAP_SHARED, file.descriptor(), path);
}

std::byte* map_memory(size_t bytes) {
  std::byte* memory =
      map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, "memory for the swap space");
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice: its refusal costs speed, nothing else
  return memory;
}

void check_ids(const char* name, std::span<const int32_t> ids, int count) {
  for (size_t i = 0; i < ids.size(); i++) {
    if (ids[i] >= 0 && ids[i] < count) continue;
    throw std::invalid_argument(std::string(name) + "[" + std::to_string(i) +
                                "] must be between 0 and " + std::to_string(count - 1) + ", got " +
                                std::to_string(ids[i]));
  }
}

void check_distinct(const char* name, std::span<const int32_t> ids) {
  std::vector<int32_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return;
  throw std::invalid_argument(std::string(name) + " must be distinct, got " +
                              std::to_string(*twice) + " twice");
}

}  // namespace

SwapSpace::SwapSpace(KvCache& cache, int num_slots, const std::string& path)
    : cache_(cache),
      num_slots_(checked_slots(num_slots)),
      bytes_(cache.layout().block_bytes_all_layers() * size_t(num_slots)),
      memory_(path.empty() ? map_memory(bytes_) : map_file(path, bytes_)) {}

SwapSpace::~SwapSpace() { munmap(memory_, bytes_); }

std::byte* SwapSpace::slot(int32_t index, int layer) const {
  const KvLayout& layout = cache_.layout();
  return memory_ + size_t(index) * layout.block_bytes_all_layers() +
         size_t(layer) * layout.block_bytes;
}

std::byte* SwapSpace::block(int32_t index, int layer) const {
  return cache_.layer(layer) + size_t(index) * cache_.layout().block_bytes;
}

void SwapSpace::check(std::span<const int32_t> blocks, std::span<const int32_t> slots) const {
  if (blocks.size() != slots.size()) {
    throw std::invalid_argument("blocks and slots must have the same number of elements, got " +
                                std::to_string(blocks.size()) + " and " +
                                std::to_string(slots.size()));
  }
  check_ids("blocks", blocks, cache_.num_blocks());
  check_ids("slots", slots, num_slots_);
}

template <class Copy>
void SwapSpace::for_each_layer(ThreadTeam& team, size_t num_blocks, const Copy& copy) const {
  const int layers = cache_.layout().shape.num_layers;
  team.run([&](int tid) {
    const Share share = share_of(int64_t(num_blocks) * layers, tid, team.size());
    for (int64_t i = share.begin; i < share.end; i++) copy(size_t(i / layers), int(i % layers));
  });
}

void SwapSpace::copy_out(ThreadTeam& team, std::span<const int32_t> blocks,
                         std::span<const int32_t> slots) const {
  check(blocks, slots);
  check_distinct("slots", slots);
  for_each_layer(team, blocks.size(), [&](size_t i, int layer) {
    std::memcpy(slot(slots[i], layer), block(blocks[i], layer), cache_.layout().block_bytes);
  });
}

void SwapSpace::copy_in(ThreadTeam& team, std::span<const int32_t> slots,
                        std::span<const int32_t> blocks) const {
  check(blocks, slots);
  check_distinct("blocks", blocks);
  for_each_layer(team, blocks.size(), [&](size_t i, int layer) {
    std::memcpy(block(blocks[i], layer), slot(slots[i], layer), cache_.layout().block_bytes);
  });
}

}  // namespace chairlift
