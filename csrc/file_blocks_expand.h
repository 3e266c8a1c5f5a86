// Blocks of weights kept as in a GGUF file (file_blocks.h) to bfloat16. For *_isa.cpp files.
//
// A weight becomes bf16(d * q + m), d, m and q widened to float32. d * q is exact there, so that it
// does not matter whether a level fuses the addition, and the bits are those of the plain format.
#pragma once

#include "file_blocks.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

constexpr int64_t kExpandedBlockBytes = 2048;  // [32 features][32 inputs] bfloat16
constexpr int kFeatureGroups = 8;              // of four features; parts that a block expands in

// A number for each feature of a panel, to be broadcast one by one.
class FeatureScales {
 public:
  FeatureScales() = default;
  static CHAIRLIFT_INLINE FeatureScales load(const std::byte* halves) {
    return {load_f16(halves), load_f16(halves + 32)};
  }
  // Scales of a group times `kSign` times those of a block.
  template <int kSign>
  static CHAIRLIFT_INLINE FeatureScales load_product(const std::byte* halves,
                                                     const std::byte* bytes) {
    const F32x16 sign = broadcast(kSign);
    return {mul(mul(load_f16(halves), sign), load_int8(bytes)),
            mul(mul(load_f16(halves + 32), sign), load_int8(bytes + 16))};
  }
  CHAIRLIFT_INLINE F32x16 operator[](int feature) const { return broadcast(values_[feature]); }

 private:
  CHAIRLIFT_INLINE FeatureScales(F32x16 low, F32x16 high) {
    store(values_, low);
    store(values_ + kLanes, high);
    // Else compilers replace broadcasts from memory by permutations, whose port is busy enough.
    asm volatile("" : "+m"(values_));
  }

  alignas(64) float values_[kPanelFeatures];
};

static CHAIRLIFT_INLINE F32x16 counting_up(float from) {
  alignas(64) static constexpr float kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
  return add(load(kNumbers), broadcast(from));
}

// Weights of 4 bits: w = d q + m (Q4_1, Q4_K) or, without minima, d (q - 8) (Q4_0).
template <bool kHasMinimum>
struct Nibbles {
  FeatureScales d, m;
  const std::byte* words;

  CHAIRLIFT_INLINE F32x16 values(int feature) const {
    if constexpr (kHasMinimum) return fmadd(d[feature], counting_up(0), m[feature]);
    return mul(d[feature], counting_up(-8));
  }
  template <int kGroup>
  CHAIRLIFT_INLINE void expand(bf16* to) const {
    constexpr int kFirst = 4 * kGroup;
    const WordIndices indices = WordIndices::load(words + 64 * kGroup);
    const ValuePair low(values(kFirst), values(kFirst + 1));
    low.store_first<0>(to, indices);
    low.store_second<4>(to + kFileBlock, indices);
    const ValuePair high(values(kFirst + 2), values(kFirst + 3));
    high.store_first<8>(to + 2 * kFileBlock, indices);
    high.store_second<12>(to + 3 * kFileBlock, indices);
  }
};

// w = d q, q signed.
struct Bytes {
  FeatureScales d;
  const std::byte* bytes;

  template <int kGroup>
  CHAIRLIFT_INLINE void expand(bf16* to) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const int feature = 4 * kGroup + i;
      const std::byte* q = bytes + feature * kFileBlock;
      store_two_bf16(to + i * kFileBlock, mul(d[feature], load_int8(q)),
                     mul(d[feature], load_int8(q + kLanes)));
    }
  }
};

// w = d (q + 16 r - 32), with a d for each half of the inputs.
struct SixBits {
  FeatureScales d[2];
  const std::byte* words;
  const std::byte* pairs;

  template <int kFeature, int kHalf>
  CHAIRLIFT_INLINE F32x16 weights() const {
    const U32x16 nibble_words = widen_halves(words + 64 * (kFeature / 4) + 32 * kHalf);
    const U32x16 pair_words = load_words(pairs + 128 * (kFeature / 16) + 64 * kHalf);
    return mul(d[kHalf][kFeature], add(nibbles<4 * (kFeature % 4), -32>(nibble_words),
                                       sixteens<2 * (kFeature % 16)>(pair_words)));
  }
  template <int kGroup, int kIndex = 0>
  CHAIRLIFT_INLINE void expand(bf16* to) const {
    constexpr int kFeature = 4 * kGroup + kIndex;
    store_two_bf16(to, weights<kFeature, 0>(), weights<kFeature, 1>());
    if constexpr (kIndex < 3) expand<kGroup, kIndex + 1>(to + kFileBlock);
  }
};

template <WeightFormat kFormat>
static CHAIRLIFT_INLINE auto open_block(const std::byte* header, const std::byte* block) {
  if constexpr (kFormat == WeightFormat::q4_0) {
    return Nibbles<false>{FeatureScales::load(header), {}, block};
  } else if constexpr (kFormat == WeightFormat::q4_1) {
    return Nibbles<true>{FeatureScales::load(header), FeatureScales::load(header + 64), block};
  } else if constexpr (kFormat == WeightFormat::q8_0) {
    return Bytes{FeatureScales::load(header), block};
  } else if constexpr (kFormat == WeightFormat::q4_k) {
    return Nibbles<true>{FeatureScales::load_product<1>(header, block),
                         FeatureScales::load_product<-1>(header + 64, block + 32), block + 64};
  } else {
    return SixBits{{FeatureScales::load_product<1>(header, block),
                    FeatureScales::load_product<1>(header, block + 32)},
                   block + 64,
                   block + 64 + 512};
  }
}

// Goes through the blocks of a panel from front to back.
template <WeightFormat kFormat>
class BlockCursor {
 public:
  explicit BlockCursor(const std::byte* panel = nullptr)
      : header_(panel), block_(panel + kLayout.header_bytes) {}

  // The block that the cursor stands at, to be expanded group by group:
  // expand<kGroup>(to) writes [4 features][32 inputs].
  CHAIRLIFT_INLINE auto block() const { return open_block<kFormat>(header_, block_); }

  CHAIRLIFT_INLINE void advance() {
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

template <int kGroup = 0, class Block>
static CHAIRLIFT_INLINE void expand_groups(const Block& block, bf16* to) {
  block.template expand<kGroup>(to + kGroup * 4 * kFileBlock);
  if constexpr (kGroup + 1 < kFeatureGroups) expand_groups<kGroup + 1>(block, to);
}

// From a block, [32 features][32 inputs], to a tile step, [16 pairs of inputs][32 features][2].
static CHAIRLIFT_INLINE void pair_inputs(const std::byte* block, std::byte* step) {
  constexpr int64_t kFeatureBytes = 2 * kFileBlock, kPairBytes = 4 * kPanelFeatures;
  transpose_words(block, kFeatureBytes, step, kPairBytes);
  transpose_words(block + kHalfPanel * kFeatureBytes, kFeatureBytes, step + 64, kPairBytes);
}

// Expands the block that a cursor stands at to a tile step.
template <WeightFormat kFormat>
static CHAIRLIFT_INLINE void expand_to_step(const BlockCursor<kFormat>& cursor, std::byte* step) {
  alignas(64) std::byte rows[kExpandedBlockBytes];
  expand_groups(cursor.block(), reinterpret_cast<bf16*>(rows));
  pair_inputs(rows, step);
}

}  // namespace chairlift::CHAIRLIFT_ISA
