// A checksum fast enough for weights on their way from the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace chairlift {

// Sums and sums of sums modulo 2^64, as in Fletcher's checksum (1982), over eight interleaved
// lanes of 64-bit words: the order of words counts, and compilers vectorise it for any machine.
uint64_t checksum(std::span<const std::byte> data);

}  // namespace chairlift
