// A checksum fast enough for weights on their way from the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace chairlift {

// Sums and sums of sums, as in Fletcher's checksum (1982), of 32-bit words in sixteen interleaved
// lanes of 64 bits: the order of words counts, and compilers vectorise it for any machine. Meant for
// pieces of at most 4 MiB, whose sums do not wrap.
uint64_t checksum(std::span<const std::byte> data);

}  // namespace chairlift
