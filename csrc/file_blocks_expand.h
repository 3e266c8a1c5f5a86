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
    alignas(64) float wide[kPanelFeatures];
    store(wide, load_f16(halves));
    store(wide + 16, load_f16(halves + 32));
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
static CHAIRLIFT_INLINE void expand_nibbles(const std::byte* block, const std::byte* words,
                                            bf16* to) {
  const LaneScales d = LaneScales::load(block);
  LaneScales m = {};
  if constexpr (kHasMinimum) m = LaneScales::load(block + 64);
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

static CHAIRLIFT_INLINE void expand_bytes(const std::byte* block, const std::byte* bytes,
                                          bf16* to) {
  const LaneScales d = LaneScales::load(block);
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

// One block of 32 features x 32 inputs to kExpandedBlockBytes.
template <WeightFormat kFormat>
static CHAIRLIFT_INLINE void expand_block(const std::byte* block, std::byte* to) {
  bf16* out = reinterpret_cast<bf16*>(to);
  const std::byte* values = block + file_block_header(kFormat);
  if constexpr (kFormat == WeightFormat::q8_0) {
    expand_bytes(block, values, out);
  } else {
    expand_nibbles<kFormat == WeightFormat::q4_1>(block, values, out);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
