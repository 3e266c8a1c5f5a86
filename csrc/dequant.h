// Weight storage formats that can be read, and their way back to float32.
//
// The block formats are GGUF's: a row of n weights is n / block_size blocks, one after the other,
// each with its own scales. Values are little-endian, as is every host this builds for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chairlift {

// Same names as chairlift.model_spec.TensorType.
enum class TensorType { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

// Finds the type of a name such as "Q4_K"; false, and `type` untouched, when there is none.
bool parse_tensor_type(std::string_view name, TensorType& type);

// Weights per block: a row's length must be a multiple of it (1 for F32, F16, BF16).
int64_t block_length(TensorType type);

// Bytes of a row of n weights; n must be a multiple of block_length(type).
size_t row_bytes(TensorType type, int64_t n);

// Writes n weights as float32. `src` needs no alignment and holds row_bytes(type, n) bytes;
// n must be a multiple of block_length(type). Touches nothing else, so threads may share rows out.
void dequantize_row(TensorType type, const uint8_t* src, float* dst, int64_t n);

}  // namespace chairlift
