#include "huge_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace chairlift {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

}  // namespace

HugeBuffer::HugeBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  // mmap aligns to small pages only: ask for one huge page more and give the ends back.
  const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* raw = mmap(nullptr, rounded + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  std::byte* start = static_cast<std::byte*>(raw);
  const size_t misaligned = reinterpret_cast<uintptr_t>(start) % kHugePage;
  const size_t front = misaligned == 0 ? 0 : kHugePage - misaligned;
  if (front != 0) munmap(start, front);
  data_ = start + front;
  munmap(data_ + rounded, kHugePage - front);
  bytes_ = rounded;
#if defined(MADV_HUGEPAGE)
  madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace chairlift
