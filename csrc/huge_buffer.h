// Big zeroed memory for weights and activations.
#pragma once

#include <cstddef>

namespace chairlift {

// Zeroed, 64-byte aligned memory from the operating system, in huge pages where it has them: a
// weight stream of hundreds of megabytes would otherwise miss the TLB at every page.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Throws std::bad_alloc when the address space cannot be had.
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace chairlift
