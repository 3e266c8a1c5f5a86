#include "gemm_file.h"
#include "gemm_vector.h"

#if defined(__AMX_BF16__)
#include "gemm_amx.h"
#endif

namespace chairlift::CHAIRLIFT_ISA {

CHAIRLIFT_DEFINE_KERNELS(GemmKernels, gemm_kernels) = {
    gemm_on_vectors<F32Weights>,
#if defined(__AMX_BF16__)
    gemm_on_tiles,
#elif defined(__AVX512BF16__)
    gemm_on_vectors<Bf16DotWeights>,
#else
    gemm_on_vectors<Bf16WidenedWeights>,
#endif
    gemm_q4_0,
    gemm_q4_1,
    gemm_q8_0,
};

}  // namespace chairlift::CHAIRLIFT_ISA
