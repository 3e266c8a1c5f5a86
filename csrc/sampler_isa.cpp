// The sampler's passes over a row; see sampler_kernels.h. Compiled once per level.
#include <limits>

#include "sampler_kernels.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;

// The first `count` floats; the other lanes are `rest`.
CHAIRLIFT_INLINE F32x16 load_or(const float* x, int32_t count, float rest) {
  return select(first_lanes(count), load_partial(x, count), broadcast(rest));
}

// Calls take(i, the 16 values at i) over the row; in the last call lanes past the end are `rest`.
template <class Take>
CHAIRLIFT_INLINE void for_each_vector(const float* x, int32_t n, float rest, Take take) {
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) take(i, load(x + i));
  if (i < n) take(i, load_or(x + i, n - i, rest));
}

// Sum of the lanes in float64, by halving.
CHAIRLIFT_INLINE double sum_lanes(F32x16 value) {
  float lanes[kLanes];
  store(lanes, value);
  double sums[kLanes / 2];
  for (int i = 0; i < 8; ++i) sums[i] = static_cast<double>(lanes[i]) + lanes[i + 8];
  for (int i = 0; i < 4; ++i) sums[i] += sums[i + 4];
  for (int i = 0; i < 2; ++i) sums[i] += sums[i + 2];
  return sums[0] + sums[1];
}

RowMax scan_max(const float* x, int32_t n) {
  // Four chains hide the latency of the comparison. `max` drops a NaN in its first argument.
  F32x16 best[4] = {broadcast(-kInfinity), broadcast(-kInfinity), broadcast(-kInfinity),
                    broadcast(-kInfinity)};
  Mask16 nan = is_nan(best[0]);
  int32_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int chain = 0; chain < 4; ++chain) {
      const F32x16 value = load(x + i + chain * kLanes);
      best[chain] = max(value, best[chain]);
      nan = mask_or(nan, is_nan(value));
    }
  }
  for_each_vector(x + i, n - i, -kInfinity, [&](int32_t, F32x16 value) {
    best[0] = max(value, best[0]);
    nan = mask_or(nan, is_nan(value));
  });
  const float value = reduce_max(max(max(best[0], best[1]), max(best[2], best[3])));
  return {value, mask_bits(nan) == 0 && value < kInfinity && value > -kInfinity};
}

ValueRange scan_range(const float* x, int32_t n) {
  F32x16 low = broadcast(kInfinity);
  F32x16 high = broadcast(-kInfinity);
  for_each_vector(x, n, x[0], [&](int32_t, F32x16 value) {
    low = min(value, low);
    high = max(value, high);
  });
  return {-reduce_max(sub(zero(), low)), reduce_max(high)};
}

// First index >= begin whose lane `test` marks, or n; `rest` is a value it does not mark.
template <class Test>
CHAIRLIFT_INLINE int32_t find(const float* x, int32_t begin, int32_t n, float rest, Test test) {
  int32_t i = begin;
  for (; i + kLanes <= n; i += kLanes) {
    const uint32_t bits = mask_bits(test(load(x + i)));
    if (bits != 0) return i + __builtin_ctz(bits);
  }
  if (i < n) {
    const uint32_t bits = mask_bits(test(load_or(x + i, n - i, rest)));
    if (bits != 0) return i + __builtin_ctz(bits);
  }
  return n;
}

int32_t find_above(const float* x, int32_t begin, int32_t n, float threshold) {
  const F32x16 limit = broadcast(threshold);
  return find(x, begin, n, -kInfinity, [&](F32x16 value) { return less(limit, value); });
}

int32_t find_equal(const float* x, int32_t begin, int32_t n, float value) {
  const F32x16 wanted = broadcast(value);
  const float rest = value == 0.0f ? 1.0f : 0.0f;
  return find(x, begin, n, rest, [&](F32x16 found) { return equal(found, wanted); });
}

int32_t count_above(const float* x, int32_t n, float threshold) {
  const F32x16 limit = broadcast(threshold);
  int32_t count = 0;
  for_each_vector(x, n, -kInfinity, [&](int32_t, F32x16 value) {
    count += __builtin_popcount(mask_bits(less(limit, value)));
  });
  return count;
}

int32_t count_equal(const float* x, int32_t n, float value) {
  const F32x16 wanted = broadcast(value);
  int32_t count = 0;
  for_each_vector(x, n, value == 0.0f ? 1.0f : 0.0f, [&](int32_t, F32x16 found) {
    count += __builtin_popcount(mask_bits(equal(found, wanted)));
  });
  return count;
}

void exponentials(const float* x, int32_t n, float max, float scale, float* weights,
                  double* block_sums) {
  const F32x16 largest = broadcast(max);
  const F32x16 factor = broadcast(scale * kLog2E);
  for (int32_t begin = 0; begin < n; begin += kSumBlock) {
    const int32_t length = n - begin < kSumBlock ? n - begin : kSumBlock;
    F32x16 sum = zero();
    for_each_vector(x + begin, length, -kInfinity, [&](int32_t i, F32x16 value) {
      const F32x16 weight = exp2(mul(sub(value, largest), factor));
      if (weights != nullptr) store(weights + begin + i, weight);
      sum = add(sum, weight);
    });
    block_sums[begin / kSumBlock] = sum_lanes(sum);
  }
}

void sum_blocks(const float* weights, int32_t n, double* block_sums) {
  for (int32_t begin = 0; begin < n; begin += kSumBlock) {
    const int32_t length = n - begin < kSumBlock ? n - begin : kSumBlock;
    F32x16 sum = zero();
    for_each_vector(weights + begin, length, 0.0f,
                    [&](int32_t, F32x16 weight) { sum = add(sum, weight); });
    block_sums[begin / kSumBlock] = sum_lanes(sum);
  }
}

void ladder(const Candidates& candidates, const float thresholds[kLadderSteps],
            double sums[kLadderSteps]) {
  for (int step = 0; step < kLadderSteps; ++step) sums[step] = 0.0;
  // Counts of a block are exact in float32, and its sums of weights as good as `exponentials`'.
  constexpr int32_t kBlock = 4 * kSumBlock;
  for (int32_t begin = 0; begin < candidates.n; begin += kBlock) {
    const int32_t length = candidates.n - begin < kBlock ? candidates.n - begin : kBlock;
    const float* weights = candidates.weights == nullptr ? nullptr : candidates.weights + begin;
    F32x16 limit[kLadderSteps];
    F32x16 sum[kLadderSteps];
    for (int step = 0; step < kLadderSteps; ++step) {
      limit[step] = broadcast(thresholds[step]);
      sum[step] = zero();
    }
    // -inf, which fills up the last vector, is above no threshold.
    for_each_vector(candidates.logits + begin, length, -kInfinity, [&](int32_t i, F32x16 value) {
      const bool whole = i + kLanes <= length;
      const F32x16 weight = weights == nullptr ? broadcast(1.0f)
                            : whole            ? load(weights + i)
                                               : load_partial(weights + i, length - i);
      for (int step = 0; step < kLadderSteps; ++step) {
        sum[step] = select(less(limit[step], value), add(sum[step], weight), sum[step]);
      }
    });
    for (int step = 0; step < kLadderSteps; ++step) sums[step] += sum_lanes(sum[step]);
  }
}

// Copies the candidates i + b of the set bits b to the end of `out`. What is written lies at or
// before what has been read, so that an array may be its own input.
CHAIRLIFT_INLINE int32_t append(const Candidates& in, int32_t i, uint32_t bits,
                                const CandidateBuffer& out, int32_t kept) {
#if defined(__AVX512F__)
  if (i + kLanes <= in.n) {
    const __mmask16 mask = static_cast<__mmask16>(bits);
    const __m512i counted = _mm512_add_epi32(
        _mm512_set1_epi32(i),
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i ids = in.ids != nullptr ? _mm512_loadu_si512(in.ids + i) : counted;
    // Compressed in a register: compressing stores are slow on some processors.
    _mm512_storeu_ps(out.logits + kept, _mm512_maskz_compress_ps(mask, load(in.logits + i)));
    _mm512_storeu_si512(out.ids + kept, _mm512_maskz_compress_epi32(mask, ids));
    if (in.weights != nullptr) {
      _mm512_storeu_ps(out.weights + kept, _mm512_maskz_compress_ps(mask, load(in.weights + i)));
    }
    return kept + __builtin_popcount(bits);
  }
#endif
  for (; bits != 0; bits &= bits - 1) {
    const int32_t from = i + __builtin_ctz(bits);
    out.logits[kept] = in.logits[from];
    out.ids[kept] = in.ids != nullptr ? in.ids[from] : from;
    if (in.weights != nullptr) out.weights[kept] = in.weights[from];
    ++kept;
  }
  return kept;
}

// The tied candidates i + b, b a set bit, whose id is at most last_id.
CHAIRLIFT_INLINE uint32_t with_ids_up_to(const Candidates& in, int32_t i, uint32_t tied,
                                         int32_t last_id) {
  uint32_t kept = 0;
  for (; tied != 0; tied &= tied - 1) {
    const int lane = __builtin_ctz(tied);
    const int32_t id = in.ids != nullptr ? in.ids[i + lane] : i + lane;
    if (id <= last_id) kept |= 1u << lane;
  }
  return kept;
}

int32_t keep(const Candidates& in, const KeepRule& rule, const CandidateBuffer& out) {
  const F32x16 low = broadcast(rule.min_logit);
  const F32x16 high = broadcast(rule.max_logit);
  int32_t kept = 0;
  const auto take = [&](int32_t i, F32x16 value, uint32_t inside) {
    uint32_t bits = mask_bits(mask_and(less(low, value), mask_not(less(high, value)))) & inside;
    const uint32_t tied = mask_bits(equal(low, value)) & inside;
    if (tied != 0) bits |= with_ids_up_to(in, i, tied, rule.last_id);
    if (bits != 0) kept = append(in, i, bits, out, kept);
  };
  int32_t i = 0;
  for (; i + kLanes <= in.n; i += kLanes) take(i, load(in.logits + i), 0xffff);
  if (i < in.n) take(i, load_partial(in.logits + i, in.n - i), (1u << (in.n - i)) - 1);
  return kept;
}

}  // namespace

CHAIRLIFT_DEFINE_KERNELS(SamplerKernels, sampler_kernels) = {
    scan_max,    scan_range,   find_above, find_equal, count_above,
    count_equal, exponentials, sum_blocks, ladder,     keep};

}  // namespace chairlift::CHAIRLIFT_ISA
