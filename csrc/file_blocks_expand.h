// Blocks of weights kept as in a GGUF file (file_blocks.h) to bfloat16. For *_isa.cpp files.
//
// A weight becomes bf16(d * q + m), d, m and q widened to float32. d * q is exact there, so that it
// does not matter whether a level fuses the addition, and the bits are those of the plain format.
#pragma once

#include "file_blocks.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int64_t kExpandedBlockBytes = 2048;  // [16 pairs][32 features][2] bfloat16

// 32 half precision scales, each for the two lanes of its feature: [4 quarters of the panel].
struct LaneScales {
  F32x16 quarter[4];

  static CHAIRLIFT_INLINE LaneScales load(const std::byte* halves) {
    return spread(load_f16(halves), load_f16(halves + 32));
  }
  // Scales of a group times `kSign` times those of a block.
  template <int kSign>
  static CHAIRLIFT_INLINE LaneScales load_product(const std::byte* halves,
                                                  const std::byte* bytes) {
    const F32x16 sign = broadcast(kSign);
    return spread(mul(mul(load_f16(halves), sign), load_int8(bytes)),
                  mul(mul(load_f16(halves + 32), sign), load_int8(bytes + 16)));
  }

 private:
  static CHAIRLIFT_INLINE LaneScales spread(F32x16 low, F32x16 high) {
    alignas(64) float wide[kPanelFeatures];
    store(wide, low);
    store(wide + 16, high);
    return {{load_twice(wide), load_twice(wide + 8), load_twice(wide + 16),
             load_twice(wide + 24)}};
  }
};

// w = d q + m (Q4_1) or, without minima, d (q - 8) (Q4_0).
template <bool kHasMinimum>
struct Nibbles {
  U32x16 words;
  F32x16 d, m;

  template <int kIndex>
  CHAIRLIFT_INLINE F32x16 weights() const {
    if constexpr (kHasMinimum) return fmadd(d, nibbles<4 * kIndex, 0>(words), m);
    return mul(d, nibbles<4 * kIndex, -8>(words));
  }
};

// Eight pairs of inputs for 16 features, from pair kIndex on.
template <int kIndex, bool kHasMinimum>
static CHAIRLIFT_INLINE void expand_octet(const Nibbles<kHasMinimum>& low,
                                          const Nibbles<kHasMinimum>& high, bf16* to) {
  store_two_bf16(to, low.template weights<kIndex>(), high.template weights<kIndex>());
  if constexpr (kIndex < 7) expand_octet<kIndex + 1>(low, high, to + 2 * kPanelFeatures);
}

template <bool kHasMinimum>
static CHAIRLIFT_INLINE void expand_nibbles(const LaneScales& d, const LaneScales& m,
                                            const std::byte* words, bf16* to) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
    for (int octet = 0; octet < 2; octet++) {
      const int quarter = 2 * half;
      const Nibbles<kHasMinimum> low = {load_words(words), d.quarter[quarter], m.quarter[quarter]};
      const Nibbles<kHasMinimum> high = {load_words(words + 64), d.quarter[quarter + 1],
                                         m.quarter[quarter + 1]};
      expand_octet<0>(low, high, to + 32 * half + 8 * octet * 2 * kPanelFeatures);
      words += 128;
    }
  }
}

// w = d (q + 16 r - 32), r at bits 2 (8 octet + index).
struct SixBits {
  U32x16 nibble_words, pair_words;
  F32x16 d;

  template <int kOctet, int kIndex>
  CHAIRLIFT_INLINE F32x16 weights() const {
    return mul(d, add(nibbles<4 * kIndex, -32>(nibble_words),
                      sixteens<2 * (8 * kOctet + kIndex)>(pair_words)));
  }
};

template <int kOctet, int kIndex = 0>
static CHAIRLIFT_INLINE void expand_octet_of_six_bits(const SixBits& low, const SixBits& high,
                                                      bf16* to) {
  store_two_bf16(to, low.weights<kOctet, kIndex>(), high.weights<kOctet, kIndex>());
  if constexpr (kIndex < 7) {
    expand_octet_of_six_bits<kOctet, kIndex + 1>(low, high, to + 2 * kPanelFeatures);
  }
}

// All of one octet: 16 inputs, which share their scales.
template <int kOctet>
static CHAIRLIFT_INLINE void expand_six_bits(const std::byte* halves, const std::byte* block,
                                             bf16* to) {
  const LaneScales d =
      LaneScales::load_product<1>(halves, block + kOctet * kPanelFeatures);
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
    const std::byte* words = block + 64 + (2 * half + kOctet) * 128;
    const std::byte* pairs = block + 64 + 512 + half * 128;
    const SixBits low = {load_words(words), load_words(pairs), d.quarter[2 * half]};
    const SixBits high = {load_words(words + 64), load_words(pairs + 64), d.quarter[2 * half + 1]};
    expand_octet_of_six_bits<kOctet>(low, high, to + 32 * half + 8 * kOctet * 2 * kPanelFeatures);
  }
}

static CHAIRLIFT_INLINE void expand_bytes(const LaneScales& d, const std::byte* bytes, bf16* to) {
  for (int pair = 0; pair < 16; pair++) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      store_two_bf16(to, mul(d.quarter[2 * half], load_int8(bytes)),
                     mul(d.quarter[2 * half + 1], load_int8(bytes + 16)));
      bytes += 32;
      to += 32;
    }
  }
}

// One block of 32 features x 32 inputs, of the group with this header, to kExpandedBlockBytes.
template <WeightFormat kFormat>
static CHAIRLIFT_INLINE void expand_block(const std::byte* header, const std::byte* block,
                                          std::byte* to) {
  bf16* out = reinterpret_cast<bf16*>(to);
  if constexpr (kFormat == WeightFormat::q4_0) {
    expand_nibbles<false>(LaneScales::load(header), {}, block, out);
  } else if constexpr (kFormat == WeightFormat::q4_1) {
    expand_nibbles<true>(LaneScales::load(header), LaneScales::load(header + 64), block, out);
  } else if constexpr (kFormat == WeightFormat::q8_0) {
    expand_bytes(LaneScales::load(header), block, out);
  } else if constexpr (kFormat == WeightFormat::q4_k) {
    expand_nibbles<true>(LaneScales::load_product<1>(header, block),
                         LaneScales::load_product<-1>(header + 64, block + 32), block + 64, out);
  } else {
    expand_six_bits<0>(header, block, out);
    expand_six_bits<1>(header, block, out);
  }
}

// Goes through the blocks of a panel from front to back.
template <WeightFormat kFormat>
class BlockCursor {
 public:
  explicit BlockCursor(const std::byte* panel = nullptr)
      : header_(panel), block_(panel + kLayout.header_bytes) {}

  CHAIRLIFT_INLINE void expand(std::byte* to) {
    expand_block<kFormat>(header_, block_, to);
    block_ += kLayout.block_bytes;
    if constexpr (kLayout.group_blocks > 1) {
      if (++index_ < kLayout.group_blocks) return;
      index_ = 0;
    }
    header_ = block_;
    block_ += kLayout.header_bytes;
  }

 private:
  static constexpr FileLayout kLayout = file_layout(kFormat);

  const std::byte* header_;
  const std::byte* block_;
  int index_ = 0;
};

}  // namespace chairlift::CHAIRLIFT_ISA
