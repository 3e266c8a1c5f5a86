#include "gemm_file.h"

#if defined(__AMX_BF16__)
#include "gemm_file_amx.h"
#else
#include "gemm_file_vector.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {

void gemm_q4_0(const GemmCall& call) { gemm_on_file_blocks<WeightFormat::q4_0>(call); }
void gemm_q4_1(const GemmCall& call) { gemm_on_file_blocks<WeightFormat::q4_1>(call); }
void gemm_q8_0(const GemmCall& call) { gemm_on_file_blocks<WeightFormat::q8_0>(call); }
void gemm_q4_k(const GemmCall& call) { gemm_on_file_blocks<WeightFormat::q4_k>(call); }
void gemm_q6_k(const GemmCall& call) { gemm_on_file_blocks<WeightFormat::q6_k>(call); }

}  // namespace chairlift::CHAIRLIFT_ISA
