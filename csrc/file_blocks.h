// Matrices that keep a GGUF file's weights: same values, same size (Q4_K: 3 % more), rearranged.
//
// A block of the file is 32 weights of one feature with their scales; in Q4_K and Q6_K eight of
// them make a group with scales of its own. Here the blocks of a panel's 32 features and the same
// 32 inputs lie together, in the order in which kernels expand them to a tile step of bfloat16
// ([16 pairs of inputs][32 features][2], see packed_matrix.h):
//
//            header of a group                  a block
//     Q4_0   half d[32]                         uint32 q[2][2][2][16]                w = d (q - 8)
//     Q4_1   half d[32], m[32]                  uint32 q[2][2][2][16]                w = d q + m
//     Q8_0   half d[32]                         int8 q[16 pairs][32][2]              w = d q
//     Q4_K   half d[32], m[32]                  uint8 s[32], t[32],
//                                               uint32 q[...]                   w = d s q - m t
//     Q6_K   half d[32]                         int8 s[2 octets][32], uint32 q[...],
//                                               uint32 r[2][2][16]          w = d s (q + 16 r - 32)
//
// q holds 4 bits of each weight as [2 halves][2 octets][2 quarters][16 lanes]: lane 2 f + c of
// quarter s of half h belongs to feature 16 h + 8 s + f, and nibble i of its word to input
// 2 (8 octet + i) + c. Shifting a vector of words thus gives 16 weights in tile order. r holds 2
// bits of each as [2 halves][2 quarters][16 lanes], those of pair 8 octet + i at 2 (8 octet + i).
//
// Every weight stands for the bfloat16 that the plain format would hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packed_matrix.h"

namespace chairlift {

constexpr int kFileBlock = 32;  // inputs that share a scale, and of a tile step

// Sizes of 32 features' blocks; a group's header comes before its blocks.
struct FileLayout {
  int group_blocks;
  int header_bytes, block_bytes;

  constexpr int group_bytes() const { return header_bytes + group_blocks * block_bytes; }
};

constexpr FileLayout file_layout(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_1:
      return {1, 128, 512};
    case WeightFormat::q8_0:
      return {1, 64, 1024};
    case WeightFormat::q4_k:
      return {8, 128, 64 + 512};
    case WeightFormat::q6_k:
      return {8, 64, 64 + 512 + 256};
    default:
      return {1, 64, 512};
  }
}

// Whether weights of this type can be kept as they are.
bool has_file_format(TensorType type);

// The format that keeps them; bfloat16 when there is none.
WeightFormat file_format_of(TensorType type);

// Stores a row of the file, in_features weights of the type that the matrix keeps, as one feature.
void write_file_blocks(const PackedMatrix& matrix, int feature, TensorType type,
                       const uint8_t* row);

// Widens in_features weights of one feature, rounded to bfloat16, to float32.
void read_file_blocks(const PackedMatrix& matrix, int feature, float* out);

}  // namespace chairlift
