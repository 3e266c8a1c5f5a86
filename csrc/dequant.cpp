#include "dequant.h"

#include <bit>
#include <cstring>

#include "half.h"
#include "sub_block_scales.h"

// Layouts: the GGUF specification and ggml's block structures. Loops are plain so that compilers
// vectorise them with whatever instruction set this file is built for. Every product is rounded
// before the addition that follows (this file is built with -ffp-contract=off), so that weights
// have the same bits on every machine.

namespace chairlift {
namespace {

constexpr int64_t kShortBlock = 32;   // weights in a block of Q4_0 .. Q8_0
constexpr int64_t kSuperBlock = 256;  // weights in a block of the K formats

inline uint16_t load_u16(const uint8_t* src) {
  uint16_t value;
  std::memcpy(&value, src, sizeof value);
  return value;
}

inline uint32_t load_u32(const uint8_t* src) {
  uint32_t value;
  std::memcpy(&value, src, sizeof value);
  return value;
}

inline float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float load_half(const uint8_t* src) { return half_to_float(load_u16(src)); }

void dequantize_f16(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = half_to_float(load_u16(src + 2 * i));
}

void dequantize_bf16(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    dst[i] = bits_to_float(static_cast<uint32_t>(load_u16(src + 2 * i)) << 16);
}

// Q4_0: half d, then 16 bytes; byte j holds weights j (low nibble) and j + 16. w = d (q - 8)
void dequantize_q4_0(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kShortBlock, src += 18) {
    const float d = load_half(src);
    const uint8_t* q = src + 2;
    for (int j = 0; j < 16; ++j) {
      dst[base + j] = d * static_cast<float>((q[j] & 0x0f) - 8);
      dst[base + j + 16] = d * static_cast<float>((q[j] >> 4) - 8);
    }
  }
}

// Q4_1: halves d and m, then nibbles as in Q4_0. w = d q + m
void dequantize_q4_1(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kShortBlock, src += 20) {
    const float d = load_half(src);
    const float m = load_half(src + 2);
    const uint8_t* q = src + 4;
    for (int j = 0; j < 16; ++j) {
      dst[base + j] = d * static_cast<float>(q[j] & 0x0f) + m;
      dst[base + j + 16] = d * static_cast<float>(q[j] >> 4) + m;
    }
  }
}

// Q5_0: half d, 32 fifth bits, then nibbles as in Q4_0. w = d (q - 16)
void dequantize_q5_0(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kShortBlock, src += 22) {
    const float d = load_half(src);
    const uint32_t high = load_u32(src + 2);
    const uint8_t* q = src + 6;
    for (int j = 0; j < 16; ++j) {
      const int low_fifth = static_cast<int>(high >> j & 1) << 4;
      const int high_fifth = static_cast<int>(high >> (j + 16) & 1) << 4;
      dst[base + j] = d * static_cast<float>(((q[j] & 0x0f) | low_fifth) - 16);
      dst[base + j + 16] = d * static_cast<float>(((q[j] >> 4) | high_fifth) - 16);
    }
  }
}

// Q5_1: halves d and m, 32 fifth bits, then nibbles as in Q4_0. w = d q + m
void dequantize_q5_1(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kShortBlock, src += 24) {
    const float d = load_half(src);
    const float m = load_half(src + 2);
    const uint32_t high = load_u32(src + 4);
    const uint8_t* q = src + 8;
    for (int j = 0; j < 16; ++j) {
      const int low_fifth = static_cast<int>(high >> j & 1) << 4;
      const int high_fifth = static_cast<int>(high >> (j + 16) & 1) << 4;
      dst[base + j] = d * static_cast<float>((q[j] & 0x0f) | low_fifth) + m;
      dst[base + j + 16] = d * static_cast<float>((q[j] >> 4) | high_fifth) + m;
    }
  }
}

// Q8_0: half d, then 32 signed bytes. w = d q
void dequantize_q8_0(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kShortBlock, src += 34) {
    const float d = load_half(src);
    const auto* q = reinterpret_cast<const int8_t*>(src + 2);
    for (int j = 0; j < 32; ++j) dst[base + j] = d * static_cast<float>(q[j]);
  }
}

// Q4_K: halves d and dmin, 12 bytes of scales, 128 bytes; each 32 bytes hold two sub-blocks of 32,
// the first in the low nibbles. w = d scale q - dmin minimum
void dequantize_q4_k(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kSuperBlock, src += 144) {
    const float d = load_half(src);
    const float dmin = load_half(src + 2);
    const SubBlockScales s = unpack_scales(src + 4);
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* q = src + 16 + 32 * pair;
      const float d0 = d * s.scale[2 * pair], d1 = d * s.scale[2 * pair + 1];
      const float m0 = dmin * s.minimum[2 * pair], m1 = dmin * s.minimum[2 * pair + 1];
      float* out = dst + base + 64 * pair;
      for (int j = 0; j < 32; ++j) {
        out[j] = d0 * static_cast<float>(q[j] & 0x0f) - m0;
        out[j + 32] = d1 * static_cast<float>(q[j] >> 4) - m1;
      }
    }
  }
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles: bit b of byte j belongs to weight
// j of sub-block b.
void dequantize_q5_k(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kSuperBlock, src += 176) {
    const float d = load_half(src);
    const float dmin = load_half(src + 2);
    const SubBlockScales s = unpack_scales(src + 4);
    const uint8_t* high = src + 16;
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* q = src + 48 + 32 * pair;
      const float d0 = d * s.scale[2 * pair], d1 = d * s.scale[2 * pair + 1];
      const float m0 = dmin * s.minimum[2 * pair], m1 = dmin * s.minimum[2 * pair + 1];
      float* out = dst + base + 64 * pair;
      for (int j = 0; j < 32; ++j) {
        const int fifth0 = (high[j] >> (2 * pair) & 1) << 4;
        const int fifth1 = (high[j] >> (2 * pair + 1) & 1) << 4;
        out[j] = d0 * static_cast<float>((q[j] & 0x0f) | fifth0) - m0;
        out[j + 32] = d1 * static_cast<float>((q[j] >> 4) | fifth1) - m1;
      }
    }
  }
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of top bit pairs, 16 signed scales, half d. Each half of
// the block (128 weights) uses 64 and 32 of these bytes: low nibbles are weights 0-63, high ones
// 64-127, and bit pair k of byte j belongs to weight 32 k + j. w = d scale (q - 32)
void dequantize_q6_k(const uint8_t* src, float* __restrict dst, int64_t n) {
  for (int64_t base = 0; base < n; base += kSuperBlock, src += 210) {
    const auto* scales = reinterpret_cast<const int8_t*>(src + 192);
    const float d = load_half(src + 208);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = src + 64 * half;
      const uint8_t* high = src + 128 + 32 * half;
      for (int group = 0; group < 8; ++group) {  // 16 weights that share a scale
        const float scale = d * static_cast<float>(scales[8 * half + group]);
        const uint8_t* nibbles = low + 16 * (group % 4);
        const uint8_t* pairs = high + 16 * (group % 2);
        const int nibble_shift = group < 4 ? 0 : 4;
        const int pair_shift = group / 2 * 2;
        float* out = dst + base + 128 * half + 16 * group;
        for (int j = 0; j < 16; ++j) {
          const int q = (nibbles[j] >> nibble_shift & 0x0f) | (pairs[j] >> pair_shift & 3) << 4;
          out[j] = scale * static_cast<float>(q - 32);
        }
      }
    }
  }
}

struct Format {
  std::string_view name;
  int64_t block_length;
  size_t block_bytes;
};

// In the order of TensorType.
constexpr Format kFormats[] = {
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", kShortBlock, 18},
    {"Q4_1", kShortBlock, 20},
    {"Q5_0", kShortBlock, 22},
    {"Q5_1", kShortBlock, 24},
    {"Q8_0", kShortBlock, 34},
    {"Q4_K", kSuperBlock, 144},
    {"Q5_K", kSuperBlock, 176},
    {"Q6_K", kSuperBlock, 210},
};

const Format& format_of(TensorType type) { return kFormats[static_cast<int>(type)]; }

}  // namespace

bool parse_tensor_type(std::string_view name, TensorType& type) {
  int index = 0;
  for (const Format& format : kFormats) {
    if (format.name == name) {
      type = static_cast<TensorType>(index);
      return true;
    }
    ++index;
  }
  return false;
}

int64_t block_length(TensorType type) { return format_of(type).block_length; }

size_t row_bytes(TensorType type, int64_t n) {
  const Format& format = format_of(type);
  return static_cast<size_t>(n / format.block_length) * format.block_bytes;
}

void dequantize_row(TensorType type, const uint8_t* src, float* dst, int64_t n) {
  switch (type) {
    case TensorType::F32: std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float)); break;
    case TensorType::F16: dequantize_f16(src, dst, n); break;
    case TensorType::BF16: dequantize_bf16(src, dst, n); break;
    case TensorType::Q4_0: dequantize_q4_0(src, dst, n); break;
    case TensorType::Q4_1: dequantize_q4_1(src, dst, n); break;
    case TensorType::Q5_0: dequantize_q5_0(src, dst, n); break;
    case TensorType::Q5_1: dequantize_q5_1(src, dst, n); break;
    case TensorType::Q8_0: dequantize_q8_0(src, dst, n); break;
    case TensorType::Q4_K: dequantize_q4_k(src, dst, n); break;
    case TensorType::Q5_K: dequantize_q5_k(src, dst, n); break;
    case TensorType::Q6_K: dequantize_q6_k(src, dst, n); break;
  }
}

}  // namespace chairlift
