// Matrices that keep a GGUF file's Q4_0, Q4_1 or Q8_0 weights: same values, same size, rearranged.
//
// A block of the file is 32 weights of one feature with their scales. Here the blocks of a panel's
// 32 features and the same 32 inputs lie together, in the order in which kernels expand them to a
// tile step of bfloat16 ([16 pairs of inputs][32 features][2], see packed_matrix.h):
//
//     half     d[32 features]                         w = d (q - 8)  |  d q + m  |  d q
//     half     m[32 features]                         Q4_1 only
//     uint32   q[2 halves][2 octets][2 quarters][16]  Q4_0 and Q4_1
//     int8     q[16 pairs][32 features][2]            Q8_0
//
// A 4-bit word holds a feature's eight weights of one octet of pairs and one parity of the input:
// lane 2 f + c of quarter s of half h belongs to feature 16 h + 8 s + f, and its nibble i to input
// 2 (8 octet + i) + c. Shifting a vector of words thus gives 16 weights in tile order.
//
// Every weight stands for the bfloat16 that the plain format would hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "packed_matrix.h"

namespace chairlift {

constexpr int kFileBlock = 32;  // inputs that share a scale, and of a tile step

// Bytes of a block of 32 features.
constexpr size_t file_block_bytes(WeightFormat format) {
  return feature_bytes(format, kFileBlock) * kPanelFeatures;
}

// Where the quantised values of a block start.
constexpr size_t file_block_header(WeightFormat format) {
  return format == WeightFormat::q4_1 ? 128 : 64;
}

// Whether weights of this type can be kept as they are.
bool has_file_format(TensorType type);

// The format that keeps them.
WeightFormat file_format_of(TensorType type);

// Stores a row of the file, in_features weights of the matrix's format, as one feature.
void write_file_blocks(const PackedMatrix& matrix, int feature, const uint8_t* row);

// Widens in_features weights of one feature, rounded to bfloat16, to float32.
void read_file_blocks(const PackedMatrix& matrix, int feature, float* out);

}  // namespace chairlift
