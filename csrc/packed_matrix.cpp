#include "packed_matrix.h"

#include <algorithm>
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
  // Members take whole groups of 16 rows: mostly also whole cache lines of the packed matrix.
  const int64_t num_groups = round_up(source.num_rows, kHalfPanel) / kHalfPanel;
  // One row for each member; made here because a member has nobody to throw to.
  std::vector<std::vector<float>> rows(
      static_cast<size_t>(team.size()),
      std::vector<float>(static_cast<size_t>(source.num_cols) + 1));
  team.run([&](int tid) {
    std::vector<float>& row = rows[static_cast<size_t>(tid)];
    const Share groups = share_of(num_groups, tid, team.size());
    const int64_t end = std::min<int64_t>(groups.end * kHalfPanel, source.num_rows);
    for (int64_t r = groups.begin * kHalfPanel; r < end; r++) {
      const int dst = static_cast<int>(r);
      const uint8_t* src = source.data + stride * static_cast<size_t>(source.source_row(dst));
      if (is_file_format(matrix.format)) {
        write_file_blocks(matrix, range.feature_of(dst), src);
        continue;
      }
      dequantize_row(source.type, src, row.data(), source.num_cols);
      write_feature(matrix, range.feature_of(dst), row.data());
    }
  });
}

void unpack_row(const PackedMatrix& matrix, int feature, float* out) {
  if (is_file_format(matrix.format)) {
    read_file_blocks(matrix, feature, out);
    return;
  }
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
