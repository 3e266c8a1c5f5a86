// Matrices that keep a GGUF file's weights: same values, same size (Q4_K: 3 % more), rearranged.
//
// A block of the file is 32 weights of one feature with their scales; in Q4_K and Q6_K eight of
// them make a group with scales of its own. Here the blocks of a panel's 32 features and the same
// 32 inputs lie together:
//
//            header of a group         a block
//     Q4_0   half d[32]                uint16 q[8][32]                            w = d (q - 8)
//     Q4_1   half d[32], m[32]         uint16 q[8][32]                            w = d q + m
//     Q8_0   half d[32]                int8 q[32 features][32]                    w = d q
//     Q4_K   half d[32], m[32]         uint8 s[32], t[32], uint16 q[8][32]        w = d s q - m t
//     Q6_K   half d[32]                int8 s[2 halves][32], uint16 q[8][32],
//                                      uint32 r[2][32]                   w = d s (q + 16 r - 32)
//
// q holds 4 bits of each weight as [8 times four features][32 inputs]: nibble i of a word belongs to
// the i-th of its features. A vector of words is thus, shifted, a feature's 32 indices into a table
// of its 16 values. r holds 2 bits of each as [2 times sixteen features][32 inputs]. s of Q6_K is
// that of 16 inputs.
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
