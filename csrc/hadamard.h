// The Hadamard transform of 16 lanes, the first stages of every longer one. For *_isa.cpp files.
#pragma once

#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

// -1 for lanes that have the bit `distance`, else 1.
struct LaneSigns {
  constexpr explicit LaneSigns(int distance) : of_lane() {
    for (int i = 0; i < kLanes; i++) of_lane[i] = i & distance ? -1.0f : 1.0f;
  }
  float of_lane[kLanes];
};

// One stage: lanes with the bit kDistance subtract.
template <int kDistance>
static CHAIRLIFT_INLINE F32x16 lane_butterfly(F32x16 v) {
  alignas(64) static constexpr LaneSigns kSigns(kDistance);
  return fmadd(v, load(kSigns.of_lane), swap_lanes<kDistance>(v));
}

static CHAIRLIFT_INLINE F32x16 hadamard_lanes(F32x16 v) {
  return lane_butterfly<8>(lane_butterfly<4>(lane_butterfly<2>(lane_butterfly<1>(v))));
}

}  // namespace chairlift::CHAIRLIFT_ISA
