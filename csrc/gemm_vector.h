// GEMM on vector registers: a few rows x 16 or 32 features over the whole of K. For gemm_isa.cpp.
#pragma once

#include "gemm_blocks.h"
#include "gemm_epilogue.h"

namespace chairlift::CHAIRLIFT_ISA {

// Rows and vectors of features whose sums fit the registers beside one step's weights.
#if defined(__AVX512F__)
constexpr int kMaxRows = 14, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kMaxRows = 6, kVectors = 1;
#elif defined(__aarch64__)
constexpr int kMaxRows = 5, kVectors = 1;
#else
constexpr int kMaxRows = 2, kVectors = 1;
#endif
constexpr int kPasses = kPanelFeatures / (kVectors * kLanes);  // of a chunk over its panel
static_assert(kMaxRows <= kMaxRowsPerChunk);

// A weight kind: how one 64-byte step of 16 features meets a row. `Input` is what rows are read
// as, kInputs how many of them a step takes, in kParts equal parts one after another: only one
// part's weights are in registers at a time. Sum is 16 sums; panel() makes the steps of a panel
// readable. Where kWidensInput, rows are made of what the call holds by widen(), once for many
// panels.
struct PackedAsRead {
  static constexpr bool kWidensInput = false;
  static CHAIRLIFT_INLINE const std::byte* panel(const GemmCall& call, int index) {
    return call.weights->panel(index);
  }
};

struct FloatKind : PackedAsRead {
  using Sums = FloatSums;
  using Sum = F32x16;
  static CHAIRLIFT_INLINE Sum start() { return zero(); }
  static CHAIRLIFT_INLINE void store_sum(float* p, Sum sum) { store(p, sum); }
};

struct F32Weights : FloatKind {
  using Input = float;
  using Out = float;
  using Part = F32x16;
  static constexpr int kInputs = 1, kParts = 1;
  static CHAIRLIFT_INLINE Part load_part(const std::byte* p, int) {
    return load(reinterpret_cast<const float*>(p));
  }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, Part w, const Input* x) {
    return fmadd(w, broadcast(*x), sum);
  }
};

// bfloat16 on both sides, with the level's paired dot product.
struct Bf16DotWeights : FloatKind {
  using Input = bf16;
  using Out = bf16;
  using Part = U32x16;
  static constexpr int kInputs = 2, kParts = 1;
  static CHAIRLIFT_INLINE Part load_part(const std::byte* p, int) { return load_words(p); }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, Part w, const Input* x) {
    uint32_t pair;
    std::memcpy(&pair, x, 4);
    return dot_pairs(sum, w, broadcast_word(pair));
  }
};

// bfloat16 weights widened in registers, rows widened once beforehand: for levels without the
// paired dot product. The values multiplied are the same.
struct Bf16WidenedWeights : FloatKind {
  using Input = float;
  using Out = bf16;
  using Part = F32x16;
  static constexpr int kInputs = 2, kParts = 2;
  static constexpr bool kWidensInput = true;
  static CHAIRLIFT_INLINE void widen(const std::byte* row, float* out) {
    store(out, load_bf16(reinterpret_cast<const bf16*>(row)));
  }
  static CHAIRLIFT_INLINE Part load_part(const std::byte* p, int part) {
    const U32x16 pairs = load_words(p);
    return part == 0 ? first_of_pairs(pairs) : second_of_pairs(pairs);
  }
  static CHAIRLIFT_INLINE F32x16 accumulate(F32x16 sum, Part w, const Input* x) {
    return fmadd(w, broadcast(*x), sum);
  }
};

struct Int8Kind : PackedAsRead {
  using Out = bf16;
  using Sum = U32x16;
  using Part = U32x16;
  static constexpr int kInputs = 4;
  static CHAIRLIFT_INLINE Sum start() { return zero_words(); }
  static CHAIRLIFT_INLINE void store_sum(int32_t* p, Sum sum) { store_words(p, sum); }
};

#if defined(__AVX512VNNI__)
// int8 on both sides, 128 added to the inputs, with the level's dot product of four.
struct Int8DotWeights : Int8Kind {
  using Sums = Int8Sums<true>;
  using Input = uint8_t;
  static constexpr int kParts = 1;
  static CHAIRLIFT_INLINE Part load_part(const std::byte* p, int) { return load_words(p); }
  static CHAIRLIFT_INLINE Sum accumulate(Sum sum, Part w, const Input* x) {
    uint32_t four;
    std::memcpy(&four, x, 4);
    return dot_bytes(sum, broadcast_word(four), w);
  }
};
#endif

// int8 weights widened to 16 bits in registers, rows widened once beforehand: each four of a row
// lie as 0, 2, 1, 3, the order in which a word of weights splits into even and odd bytes.
struct Int8WidenedWeights : Int8Kind {
  using Sums = Int8Sums<false>;
  using Input = int16_t;
  static constexpr int kParts = 2;
  static constexpr bool kWidensInput = true;
  static CHAIRLIFT_INLINE void widen(const std::byte* row, int16_t* out) {
    const int8_t* x = reinterpret_cast<const int8_t*>(row);
    for (int i = 0; i < kLanes; i++) out[i] = x[(i & ~3) + (i & 1) * 2 + (i & 2) / 2];
  }
  static CHAIRLIFT_INLINE Part load_part(const std::byte* p, int part) {
    return part == 0 ? even_bytes(load_words(p)) : odd_bytes(load_words(p));
  }
  static CHAIRLIFT_INLINE Sum accumulate(Sum sum, Part w, const Input* x) {
    uint32_t halves;
    std::memcpy(&halves, x, 4);
    return dot_halves(sum, w, broadcast_word(halves));
  }
};

// Where to fetch ahead while a chunk is computed: `stride` bytes every step, at most two lines.
struct Prefetch {
  const std::byte* at;
  int64_t stride;
};

template <class Kind, int kRows, int kVecs>
static __attribute__((noinline)) void multiply_chunk(const typename Kind::Input* x, int64_t stride,
                                                     const std::byte* weights, int64_t num_steps,
                                                     Prefetch ahead,
                                                     typename Kind::Sums::Element* block) {
  typename Kind::Sum sums[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; v++) sums[r][v] = Kind::start();
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < num_steps; step++) {
    __builtin_prefetch(ahead.at, 0, 2);
    if (ahead.stride > 64) __builtin_prefetch(ahead.at + 64, 0, 2);
    ahead.at += ahead.stride;
#pragma GCC unroll 2
    for (int part = 0; part < Kind::kParts; part++) {
      typename Kind::Part w[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; v++) w[v] = Kind::load_part(weights + 64 * v, part);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; v++) {
          sums[r][v] = Kind::accumulate(sums[r][v], w[v], x + r * stride);
        }
      }
      x += Kind::kInputs / Kind::kParts;
    }
    weights += 64 * (kPanelFeatures / kLanes);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; v++) {
      Kind::store_sum(block + r * kPanelFeatures + v * kLanes, sums[r][v]);
    }
  }
}

// The same for a number of rows known at run time only.
template <class Kind, int kRows = kMaxRows>
static CHAIRLIFT_INLINE void multiply_rows(int num_rows, const typename Kind::Input* x,
                                           int64_t stride, const std::byte* weights,
                                           int64_t num_steps, Prefetch ahead,
                                           typename Kind::Sums::Element* block) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return multiply_rows<Kind, kRows - 1>(num_rows, x, stride, weights, num_steps, ahead, block);
    }
  }
  for (int pass = 0; pass < kPasses; pass++) {
    const int v = pass * kVectors;
    multiply_chunk<Kind, kRows, kVectors>(x, stride, weights + 64 * v, num_steps, ahead,
                                          block + v * kLanes);
    ahead.at += num_steps * ahead.stride;
  }
}

// Rows whose activations stay in the L2 cache while panels stream past; a multiple of kMaxRows.
static CHAIRLIFT_INLINE int rows_per_block(int64_t padded_in) {
  const int64_t fitting = static_cast<int64_t>(kGemmScratchBytes) / (4 * padded_in);
  const int64_t chunks = fitting / kMaxRows;
  return static_cast<int>(chunks < 1 ? 1 : chunks > 16 ? 16 : chunks) * kMaxRows;
}

template <class Kind>
static inline void widen_rows(const GemmCall& call, int first_row, int num_rows,
                              typename Kind::Input* out) {
  const int64_t n = call.weights->padded_in();
  const int64_t bytes = call.weights->format == WeightFormat::int8 ? 1 : 2;  // of an input
  for (int r = 0; r < num_rows; r++) {
    const std::byte* row = call.input + (first_row + r) * call.input_stride * bytes;
    for (int64_t k = 0; k < n; k += kLanes) Kind::widen(row + k * bytes, out + r * n + k);
  }
}

// Rows as a weight kind reads them: as they are, or widened when their first block comes.
template <class Kind>
class InputRows {
 public:
  explicit InputRows(const GemmCall& call) : call_(call) {}

  int64_t stride() const {
    return Kind::kWidensInput ? call_.weights->padded_in() : call_.input_stride;
  }
  const typename Kind::Input* rows(int first_row, int end_row) {
    using Input = typename Kind::Input;
    if constexpr (!Kind::kWidensInput) {
      return reinterpret_cast<const Input*>(call_.input) + first_row * call_.input_stride;
    }
    Input* wide = reinterpret_cast<Input*>(call_.scratch);
    if constexpr (Kind::kWidensInput) {
      if (first_row != widened_row_) widen_rows<Kind>(call_, first_row, end_row - first_row, wide);
      widened_row_ = first_row;
    }
    return wide;
  }

 private:
  const GemmCall& call_;
  int widened_row_ = -1;
};

template <class Kind, Epilogue kEpilogue>
static inline void multiply_block(const GemmCall& call, const GemmBlock& block,
                                  InputRows<Kind>& input) {
  const int num_rows = block.end_row - block.first_row;
  const int64_t num_steps = call.weights->padded_in() / Kind::kInputs;
  const typename Kind::Input* x = input.rows(block.first_row, block.end_row);
  alignas(64) typename Kind::Sums::Element sums[kMaxRows * kPanelFeatures];
  const int num_chunks = (num_rows + kMaxRows - 1) / kMaxRows;
  // All passes of all chunks together fetch the next panel.
  const int64_t panel_bytes = static_cast<int64_t>(call.weights->panel_bytes());
  const int64_t fetching_steps = num_steps * num_chunks * kPasses;
  const int64_t ahead_stride = round_up(panel_bytes, fetching_steps) / fetching_steps;
  const std::byte* weights = Kind::panel(call, block.panel);
  for (int chunk = 0; chunk < num_chunks; chunk++) {
    const int begin = num_rows * chunk / num_chunks, end = num_rows * (chunk + 1) / num_chunks;
    const Prefetch ahead = {block.ahead + chunk * kPasses * num_steps * ahead_stride,
                            ahead_stride};
    multiply_rows<Kind>(end - begin, x + begin * input.stride(), input.stride(),
                        weights, num_steps, ahead, sums);
    PendingBlock<kEpilogue, typename Kind::Out, typename Kind::Sums>(
        call, sums, block.first_row + begin, block.first_row + end, block.panel)
        .finish_all();
  }
}

template <class Kind, Epilogue kEpilogue>
static void multiply_all_rows(const GemmCall& call) {
  InputRows<Kind> input(call);
  for_each_block<1>(call, rows_per_block(call.weights->padded_in()),
                    [&](const GemmBlock& block) {
                      multiply_block<Kind, kEpilogue>(call, block, input);
                    });
}

template <class Kind>
static void gemm_on_vectors(const GemmCall& call) {
  switch (call.epilogue) {
    case Epilogue::store:
      return multiply_all_rows<Kind, Epilogue::store>(call);
    case Epilogue::add:
      return multiply_all_rows<Kind, Epilogue::add>(call);
    case Epilogue::silu_mul:
      return multiply_all_rows<Kind, Epilogue::silu_mul>(call);
  }
}

}  // namespace chairlift::CHAIRLIFT_ISA
