#include "file_blocks.h"

#include <cstring>

#include "bf16.h"
#include "half.h"

namespace chairlift {
namespace {

constexpr int kWords = 4;  // of a feature in a 4-bit block: [2 octets][2 parities]

// Where word (octet, parity) of a feature lies behind the header, in words.
int word_index(int feature, int octet, int parity) {
  const int half = feature / 16, quarter = feature / 8 % 2;
  return ((half * 2 + octet) * 2 + quarter) * 16 + feature % 8 * 2 + parity;
}

// Input of nibble i of word w of a feature.
int input_of(int w, int i) { return 2 * (w / 2 * 8 + i) + w % 2; }

// Byte j of a file's block holds weights j (low nibble) and j + 16.
void write_nibbles(std::byte* words, int feature, const uint8_t* q) {
  for (int w = 0; w < kWords; w++) {
    uint32_t word = 0;
    for (int i = 0; i < 8; i++) {
      const int input = input_of(w, i);
      const uint32_t nibble = input < 16 ? q[input] & 0x0fu : q[input - 16] >> 4;
      word |= nibble << (4 * i);
    }
    std::memcpy(words + 4 * word_index(feature, w / 2, w % 2), &word, 4);
  }
}

void read_nibbles(const std::byte* words, int feature, int offset, float* q) {
  for (int w = 0; w < kWords; w++) {
    uint32_t word;
    std::memcpy(&word, words + 4 * word_index(feature, w / 2, w % 2), 4);
    for (int i = 0; i < 8; i++) {
      q[input_of(w, i)] = static_cast<float>(static_cast<int>(word >> (4 * i) & 15) - offset);
    }
  }
}

std::byte* byte_pair(std::byte* bytes, int feature, int pair) {
  return bytes + (pair * kPanelFeatures + feature) * 2;
}

void write_bytes(std::byte* bytes, int feature, const uint8_t* q) {
  for (int pair = 0; pair < 16; pair++) {
    std::memcpy(byte_pair(bytes, feature, pair), q + 2 * pair, 2);
  }
}

void read_bytes(std::byte* bytes, int feature, float* q) {
  for (int input = 0; input < kFileBlock; input++) {
    const std::byte value = byte_pair(bytes, feature, input / 2)[input % 2];
    q[input] = static_cast<float>(static_cast<int8_t>(value));
  }
}

float read_half(const std::byte* halves, int index) {
  uint16_t half;
  std::memcpy(&half, halves + 2 * index, 2);
  return half_to_float(half);
}

}  // namespace

bool has_file_format(TensorType type) {
  return type == TensorType::Q4_0 || type == TensorType::Q4_1 || type == TensorType::Q8_0;
}

WeightFormat file_format_of(TensorType type) {
  if (type == TensorType::Q4_0) return WeightFormat::q4_0;
  return type == TensorType::Q4_1 ? WeightFormat::q4_1 : WeightFormat::q8_0;
}

void write_file_blocks(const PackedMatrix& matrix, int feature, const uint8_t* row) {
  const WeightFormat format = matrix.format;
  const int lane = feature % kPanelFeatures;
  std::byte* block = matrix.panel(feature / kPanelFeatures);
  for (int k = 0; k < matrix.in_features; k += kFileBlock) {
    std::memcpy(block + 2 * lane, row, 2);
    if (format == WeightFormat::q4_1) std::memcpy(block + 64 + 2 * lane, row + 2, 2);
    std::byte* values = block + file_block_header(format);
    if (format == WeightFormat::q8_0) {
      write_bytes(values, lane, row + 2);
    } else {
      write_nibbles(values, lane, row + (format == WeightFormat::q4_1 ? 4 : 2));
    }
    row += feature_bytes(format, kFileBlock);
    block += file_block_bytes(format);
  }
}

void read_file_blocks(const PackedMatrix& matrix, int feature, float* out) {
  const WeightFormat format = matrix.format;
  const int lane = feature % kPanelFeatures;
  std::byte* block = matrix.panel(feature / kPanelFeatures);
  for (int k = 0; k < matrix.in_features; k += kFileBlock) {
    std::byte* values = block + file_block_header(format);
    if (format == WeightFormat::q8_0) {
      read_bytes(values, lane, out + k);
    } else {
      read_nibbles(values, lane, format == WeightFormat::q4_0 ? 8 : 0, out + k);
    }
    const float d = read_half(block, lane);
    const bool has_minimum = format == WeightFormat::q4_1;
    const float m = has_minimum ? read_half(block + 64, lane) : 0.0f;
    for (int i = k; i < k + kFileBlock; i++) {
      const float product = d * out[i];
      out[i] = bf16_bits_to_float(float_to_bf16_bits(has_minimum ? product + m : product));
    }
    block += file_block_bytes(format);
  }
}

}  // namespace chairlift
