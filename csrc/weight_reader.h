// Reads packed weights from a file into a model's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "thread_team.h"

namespace chairlift {

// Fills the parts, which lie end to end from the start of the file, members of the team taking
// chunks as they come to them. Each part is cut into chunks of its own; `checksums` has one per
// chunk, in order. Returns an empty text, or what is wrong; then the parts are of no use.
// Throws std::invalid_argument if there are more or fewer chunks than checksums.
std::string read_parts(int descriptor, std::span<const std::span<std::byte>> parts,
                       size_t chunk_bytes, std::span<const uint64_t> checksums, ThreadTeam& team);

}  // namespace chairlift
