#include "file_blocks.h"

#include <array>
#include <cstring>

#include "bf16.h"
#include "half.h"
#include "sub_block_scales.h"

namespace chairlift {
namespace {

// The 32 values q of a block, as the file's formula has them before any offset is taken off.
using Values = std::array<uint8_t, kFileBlock>;

// Bits [kBits * place, + kBits) of a word.
template <class Word, int kBits>
void write_bits(std::byte* words, size_t index, int place, unsigned value) {
  constexpr unsigned kMask = (1u << kBits) - 1;
  Word word;
  std::memcpy(&word, words + sizeof(Word) * index, sizeof(Word));
  word = static_cast<Word>((word & ~(kMask << kBits * place)) | (value & kMask) << kBits * place);
  std::memcpy(words + sizeof(Word) * index, &word, sizeof(Word));
}

template <class Word, int kBits>
unsigned read_bits(const std::byte* words, size_t index, int place) {
  Word word;
  std::memcpy(&word, words + sizeof(Word) * index, sizeof(Word));
  return static_cast<unsigned>(word) >> kBits * place & ((1u << kBits) - 1);
}

// The lower four bits: a nibble of a word for each input, which four features share.
void write_nibbles(std::byte* words, int feature, const Values& q) {
  const size_t first = size_t(feature / 4) * kFileBlock;
  for (size_t j = 0; j < kFileBlock; j++) {
    write_bits<uint16_t, 4>(words, first + j, feature % 4, q[j]);
  }
}

void read_nibbles(const std::byte* words, int feature, Values& q) {
  const size_t first = size_t(feature / 4) * kFileBlock;
  for (size_t j = 0; j < kFileBlock; j++) {
    q[j] = static_cast<uint8_t>(read_bits<uint16_t, 4>(words, first + j, feature % 4));
  }
}

// The upper two of six bits: words that sixteen features share.
size_t pair_word(int feature, size_t input) {
  return size_t(feature / 16) * kFileBlock + input;
}

void write_pairs(std::byte* words, int feature, const Values& q) {
  for (size_t j = 0; j < kFileBlock; j++) {
    write_bits<uint32_t, 2>(words, pair_word(feature, j), feature % 16, q[j] >> 4);
  }
}

void read_pairs(const std::byte* words, int feature, Values& q) {
  for (size_t j = 0; j < kFileBlock; j++) {
    const unsigned pair = read_bits<uint32_t, 2>(words, pair_word(feature, j), feature % 16);
    q[j] = static_cast<uint8_t>(q[j] | pair << 4);
  }
}

// A feature's part of a group: where its header and its blocks lie.
struct Place {
  WeightFormat format;
  int feature;  // within the panel
  std::byte* group;

  std::byte* header(int index) const { return group + 64 * index + 2 * feature; }
  std::byte* block(int index) const {
    const FileLayout layout = file_layout(format);
    return group + layout.header_bytes + index * layout.block_bytes;
  }
};

// Byte j of 16 holds weights j (low nibble) and j + 16.
Values short_block_nibbles(const uint8_t* bytes) {
  Values q;
  for (size_t j = 0; j < 16; j++) {
    q[j] = bytes[j] & 15;
    q[j + 16] = bytes[j] >> 4;
  }
  return q;
}

void write_q4_k(const Place& place, const uint8_t* source) {
  std::memcpy(place.header(0), source, 2);
  std::memcpy(place.header(1), source + 2, 2);
  const SubBlockScales scales = unpack_scales(source + 4);
  for (int b = 0; b < 8; b++) {
    std::byte* block = place.block(b);
    block[place.feature] = std::byte{scales.scale[b]};
    block[kPanelFeatures + place.feature] = std::byte{scales.minimum[b]};
    Values q;
    for (size_t j = 0; j < kFileBlock; j++) {
      q[j] = static_cast<uint8_t>(source[16 + 32 * (b / 2) + static_cast<int>(j)] >> (4 * (b % 2)));
    }
    write_nibbles(block + 64, place.feature, q);
  }
}

// Blocks 4 h .. 4 h + 3 are half h of the file's group: see dequantize_q6_k.
void write_q6_k(const Place& place, const uint8_t* source) {
  std::memcpy(place.header(0), source + 208, 2);
  for (int b = 0; b < 8; b++) {
    std::byte* block = place.block(b);
    const int half = b / 4, part = b % 4;
    const uint8_t* low = source + 64 * half + 32 * (part % 2);
    const uint8_t* high = source + 128 + 32 * half;
    Values q;
    for (size_t j = 0; j < kFileBlock; j++) {
      q[j] = static_cast<uint8_t>((low[j] >> (part < 2 ? 0 : 4) & 15) |
                                  (high[j] >> (2 * part) & 3) << 4);
    }
    for (int octet = 0; octet < 2; octet++) {
      block[kPanelFeatures * octet + place.feature] = std::byte{source[192 + 2 * b + octet]};
    }
    write_nibbles(block + 64, place.feature, q);
    write_pairs(block + 64 + 512, place.feature, q);
  }
}

void write_group(const Place& place, const uint8_t* source) {
  if (place.format == WeightFormat::q4_k) return write_q4_k(place, source);
  if (place.format == WeightFormat::q6_k) return write_q6_k(place, source);
  std::memcpy(place.header(0), source, 2);
  if (place.format == WeightFormat::q8_0) {
    std::memcpy(place.block(0) + place.feature * kFileBlock, source + 2, kFileBlock);
    return;
  }
  const bool has_minimum = place.format == WeightFormat::q4_1;
  if (has_minimum) std::memcpy(place.header(1), source + 2, 2);
  const uint8_t* nibbles = source + (has_minimum ? 4 : 2);
  write_nibbles(place.block(0), place.feature, short_block_nibbles(nibbles));
}

float read_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return half_to_float(half);
}

void read_block(const Place& place, int index, float* out) {
  const float d = read_half(place.header(0));
  std::byte* block = place.block(index);
  Values q;
  if (place.format == WeightFormat::q8_0) {
    for (int i = 0; i < kFileBlock; i++) {
      const std::byte value = block[place.feature * kFileBlock + i];
      out[i] = d * static_cast<float>(static_cast<int8_t>(value));
    }
  } else if (place.format == WeightFormat::q6_k) {
    read_nibbles(block + 64, place.feature, q);
    read_pairs(block + 64 + 512, place.feature, q);
    for (int i = 0; i < kFileBlock; i++) {
      const std::byte scale = block[i / 16 * kPanelFeatures + place.feature];
      const float factor = d * static_cast<float>(static_cast<int8_t>(scale));
      out[i] = factor * static_cast<float>(q[static_cast<size_t>(i)] - 32);
    }
  } else if (place.format == WeightFormat::q4_k) {
    read_nibbles(block + 64, place.feature, q);
    const float factor = d * static_cast<float>(block[place.feature]);
    const float minimum = read_half(place.header(1)) *
                          static_cast<float>(block[kPanelFeatures + place.feature]);
    for (int i = 0; i < kFileBlock; i++) {
      out[i] = factor * static_cast<float>(q[static_cast<size_t>(i)]) - minimum;
    }
  } else {
    read_nibbles(block, place.feature, q);
    const bool has_minimum = place.format == WeightFormat::q4_1;
    for (int i = 0; i < kFileBlock; i++) {
      const int value = q[static_cast<size_t>(i)];
      out[i] = has_minimum ? d * static_cast<float>(value) + read_half(place.header(1))
                           : d * static_cast<float>(value - 8);
    }
  }
}

struct KeptFormat {
  TensorType type;
  WeightFormat format;
};

constexpr KeptFormat kKeptFormats[] = {
    {TensorType::Q4_0, WeightFormat::q4_0}, {TensorType::Q4_1, WeightFormat::q4_1},
    {TensorType::Q8_0, WeightFormat::q8_0}, {TensorType::Q4_K, WeightFormat::q4_k},
    {TensorType::Q6_K, WeightFormat::q6_k},
};

}  // namespace

bool has_file_format(TensorType type) {
  for (const KeptFormat& kept : kKeptFormats) {
    if (kept.type == type) return true;
  }
  return false;
}

WeightFormat file_format_of(TensorType type) {
  for (const KeptFormat& kept : kKeptFormats) {
    if (kept.type == type) return kept.format;
  }
  return WeightFormat::bfloat16;
}

void write_file_blocks(const PackedMatrix& matrix, int feature, TensorType type,
                       const uint8_t* row) {
  const FileLayout layout = file_layout(matrix.format);
  Place place = {matrix.format, feature % kPanelFeatures, matrix.panel(feature / kPanelFeatures)};
  for (int k = 0; k < matrix.in_features; k += layout.group_blocks * kFileBlock) {
    write_group(place, row);
    row += row_bytes(type, layout.group_blocks * kFileBlock);
    place.group += layout.group_bytes();
  }
}

void read_file_blocks(const PackedMatrix& matrix, int feature, float* out) {
  const FileLayout layout = file_layout(matrix.format);
  Place place = {matrix.format, feature % kPanelFeatures, matrix.panel(feature / kPanelFeatures)};
  for (int k = 0; k < matrix.in_features; k += layout.group_blocks * kFileBlock) {
    for (int b = 0; b < layout.group_blocks; b++) read_block(place, b, out + k + b * kFileBlock);
    place.group += layout.group_bytes();
  }
  for (int k = 0; k < matrix.in_features; k++) {
    out[k] = bf16_bits_to_float(float_to_bf16_bits(out[k]));
  }
}

}  // namespace chairlift
