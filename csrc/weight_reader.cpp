#include "weight_reader.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "checksum.h"

namespace chairlift {
namespace {

struct Chunk {
  std::span<std::byte> memory;
  size_t offset;  // in the file
};

// What went wrong with a chunk: an errno, or one of these.
constexpr int kEndsEarly = -1, kHasChanged = -2;

std::vector<Chunk> cut(std::span<const std::span<std::byte>> parts, size_t chunk_bytes) {
  std::vector<Chunk> chunks;
  size_t offset = 0;
  for (std::span<std::byte> part : parts) {
    while (!part.empty()) {
      const size_t size = std::min(chunk_bytes, part.size());
      chunks.push_back({part.first(size), offset});
      part = part.subspan(size);
      offset += size;
    }
  }
  return chunks;
}

int read_chunk(int descriptor, const Chunk& chunk, uint64_t expected) {
  size_t done = 0;
  while (done < chunk.memory.size()) {
    const ssize_t n = pread(descriptor, chunk.memory.data() + done, chunk.memory.size() - done,
                            static_cast<off_t>(chunk.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : kEndsEarly;
    done += static_cast<size_t>(n);
  }
  return checksum(chunk.memory) == expected ? 0 : kHasChanged;
}

std::string describe(int fault) {
  if (fault == kEndsEarly) return "it ends early";
  if (fault == kHasChanged) return "a checksum differs: what it holds has changed";
  return std::strerror(fault);
}

}  // namespace

std::string read_parts(int descriptor, std::span<const std::span<std::byte>> parts,
                       size_t chunk_bytes, std::span<const uint64_t> checksums,
                       ThreadTeam& team) {
  const std::vector<Chunk> chunks = cut(parts, chunk_bytes);
  if (chunks.size() != checksums.size()) {
    throw std::invalid_argument("checksums must have " + std::to_string(chunks.size()) +
                                " elements, one per chunk, got " +
                                std::to_string(checksums.size()));
  }
  std::atomic<size_t> next{0};
  std::atomic<int> fault{0};
  team.run([&](int) {
    for (size_t i = next++; i < chunks.size() && fault == 0; i = next++) {
      const int result = read_chunk(descriptor, chunks[i], checksums[i]);
      if (result != 0) fault = result;
    }
  });
  return fault == 0 ? "" : describe(fault);
}

}  // namespace chairlift
