#include "packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "bf16.h"
#include "file_blocks.h"

namespace chairlift {
namespace {

// 32-bit words of one feature start here and are kPanelFeatures words apart.
uint32_t* feature_words(const PackedMatrix& matrix, int feature) {
  return reinterpret_cast<uint32_t*>(matrix.panel(feature / kPanelFeatures)) +
         feature % kPanelFeatures;
}

void write_int8_feature(const PackedMatrix& matrix, int feature, float* row, int8_t* bytes) {
  const QuantisedRow quantised = {matrix.in_features, row, bytes, 0};
  const float scale = quantise_kernels(current_isa()).float32(row, quantised);
  uint32_t* words = feature_words(matrix, feature);
  int32_t sum = 0;
  for (int64_t k = 0; k < matrix.padded_in(); k += 4) {
    std::memcpy(words + k / 4 * kPanelFeatures, bytes + k, 4);
    sum += bytes[k] + bytes[k + 1] + bytes[k + 2] + bytes[k + 3];
  }
  Int8PanelScales& scales = matrix.int8_scales(feature / kPanelFeatures);
  scales.scale[feature % kPanelFeatures] = scale / kRotationBlock;  // exact
  scales.correction[feature % kPanelFeatures] = -128 * sum;
}

void read_int8_feature(const PackedMatrix& matrix, int feature, float* out) {
  const uint32_t* words = feature_words(matrix, feature);
  const float scale = matrix.int8_scales(feature / kPanelFeatures).scale[feature % kPanelFeatures];
  for (int first = 0; first < matrix.in_features; first += kRotationBlock) {
    std::array<float, kRotationBlock> block;
    for (int i = 0; i < kRotationBlock; i += 4) {
      int8_t quad[4];
      std::memcpy(quad, words + (first + i) / 4 * kPanelFeatures, 4);
      for (int j = 0; j < 4; j++) block[size_t(i + j)] = scale * kRotationBlock * quad[j];
    }
    rotate_back(block.data(), kRotationBlock);
    std::copy_n(block.data(), std::min(kRotationBlock, matrix.in_features - first), out + first);
  }
}

void write_feature(const PackedMatrix& matrix, int feature, float* row) {
  uint32_t* words = feature_words(matrix, feature);
  const int n = matrix.in_features;
  if (matrix.format == WeightFormat::float32) {
    for (int k = 0; k < n; k++) std::memcpy(words + k * kPanelFeatures, row + k, 4);
    return;
  }
  row[n] = 0.0f;  // the second of the last pair when n is odd
  for (int pair = 0; pair < (n + 1) / 2; pair++) {
    words[pair * kPanelFeatures] =
        float_to_bf16_bits(row[2 * pair]) | uint32_t(float_to_bf16_bits(row[2 * pair + 1])) << 16;
  }
}

}  // namespace

void pack_rows(const SourceRows& source, FeatureRange range, const PackedMatrix& matrix,
               ThreadTeam& team) {
  const size_t stride = row_bytes(source.type, source.num_cols);
  // Members take the rows of whole groups of 16 features: mostly whole cache lines of the packed
  // matrix, and never parts of words that features share.
  const int64_t before = range.panel_stride == 1 ? range.first % kHalfPanel : 0;
  const int64_t num_groups = round_up(source.num_rows + before, kHalfPanel) / kHalfPanel;
  // Buffers for each member; made here because a member has nobody to throw to.
  const size_t members = static_cast<size_t>(team.size());
  const size_t columns = static_cast<size_t>(round_up(source.num_cols + 1, kRotationBlock));
  std::vector<std::vector<float>> rows(members, std::vector<float>(columns));
  std::vector<std::vector<int8_t>> bytes(members, std::vector<int8_t>(columns));
  team.run([&](int tid) {
    std::vector<float>& row = rows[static_cast<size_t>(tid)];
    const Share groups = share_of(num_groups, tid, team.size());
    const int64_t end = std::min<int64_t>(groups.end * kHalfPanel - before, source.num_rows);
    for (int64_t r = std::max<int64_t>(groups.begin * kHalfPanel - before, 0); r < end; r++) {
      const int dst = static_cast<int>(r);
      const uint8_t* src = source.data + stride * static_cast<size_t>(source.source_row(dst));
      if (is_file_format(matrix.format)) {
        write_file_blocks(matrix, range.feature_of(dst), source.type, src);
        continue;
      }
      dequantize_row(source.type, src, row.data(), source.num_cols);
      if (matrix.format == WeightFormat::int8) {
        write_int8_feature(matrix, range.feature_of(dst), row.data(),
                           bytes[static_cast<size_t>(tid)].data());
      } else {
        write_feature(matrix, range.feature_of(dst), row.data());
      }
    }
  });
}

void unpack_row(const PackedMatrix& matrix, int feature, float* out) {
  if (is_file_format(matrix.format)) {
    read_file_blocks(matrix, feature, out);
    return;
  }
  if (matrix.format == WeightFormat::int8) return read_int8_feature(matrix, feature, out);
  const uint32_t* words = feature_words(matrix, feature);
  const int n = matrix.in_features;
  if (matrix.format == WeightFormat::float32) {
    for (int k = 0; k < n; k++) std::memcpy(out + k, words + k * kPanelFeatures, 4);
    return;
  }
  for (int k = 0; k < n; k++) {
    const uint32_t pair = words[k / 2 * kPanelFeatures];
    out[k] = bf16_bits_to_float(static_cast<uint16_t>(k % 2 == 0 ? pair : pair >> 16));
  }
}

}  // namespace chairlift
