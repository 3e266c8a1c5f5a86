// GEMM over weights kept as in a GGUF file; for gemm_isa.cpp. Every result has the bits that the
// level's bfloat16 GEMM gives with the same weights in the plain format.
#pragma once

#include "gemm.h"
#include "simd.h"

namespace chairlift::CHAIRLIFT_ISA {

void gemm_q4_0(const GemmCall& call);
void gemm_q4_1(const GemmCall& call);
void gemm_q8_0(const GemmCall& call);
void gemm_q4_k(const GemmCall& call);
void gemm_q6_k(const GemmCall& call);

}  // namespace chairlift::CHAIRLIFT_ISA
