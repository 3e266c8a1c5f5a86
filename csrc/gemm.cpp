#include "gemm.h"

#include <cstdint>

namespace chairlift {

GemmShare gemm_share(int num_rows, int num_panels, int tid, int num_members) {
  const int64_t row_blocks = round_up(num_rows, kRowPadding) / kRowPadding;
  int best_row_groups = 1;
  int64_t least_work = INT64_MAX;
  for (int row_groups = 1; row_groups <= num_members && row_groups <= row_blocks; row_groups++) {
    if (num_members % row_groups != 0) continue;
    const int64_t panel_groups = num_members / row_groups;
    const int64_t work = ((row_blocks + row_groups - 1) / row_groups) *
                         ((num_panels + panel_groups - 1) / panel_groups);
    if (work < least_work) {
      least_work = work;
      best_row_groups = row_groups;
    }
  }
  const int panel_groups = num_members / best_row_groups;
  const Share rows = share_of(row_blocks, tid / panel_groups, best_row_groups);
  const Share panels = share_of(num_panels, tid % panel_groups, panel_groups);
  const auto row = [&](int64_t block) {
    return static_cast<int>(std::min<int64_t>(block * kRowPadding, num_rows));
  };
  return {row(rows.begin), row(rows.end), static_cast<int>(panels.begin),
          static_cast<int>(panels.end)};
}

}  // namespace chairlift
