#include "gemm_file.h"
#include "gemm_vector.h"

#if defined(__AMX_BF16__)
#include "gemm_amx.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {

CHAIRLIFT_DEFINE_KERNELS(GemmKernels, gemm_kernels) = {
    gemm_on_vectors<F32Weights>,
#if defined(__AMX_BF16__)
    gemm_on_tiles<Bf16Tiles>,
    gemm_on_tiles<Int8Tiles>,
    0,
#elif defined(__AVX512BF16__)
    gemm_on_vectors<Bf16DotWeights>,
    gemm_on_vectors<Int8DotWeights>,  // the level has VNNI, too
    0x80,
#else
    gemm_on_vectors<Bf16WidenedWeights>,
    gemm_on_vectors<Int8WidenedWeights>,
    0,
#endif
    gemm_q4_0,
    gemm_q4_1,
    gemm_q8_0,
    gemm_q4_k,
    gemm_q6_k,
};

}  // namespace chairlift::CHAIRLIFT_ISA
