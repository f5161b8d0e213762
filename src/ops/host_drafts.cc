// The operations of HostOps that follow drafts from step to step.
#include <algorithm>

#include "ops/host_ops.h"

namespace skiff {

void HostOps::move_back(const RaggedBatch& batch) {
  const auto& [slots, refused] = batch.moved_back;
  for (int64_t s = 0; s < slots.rows(); ++s) {
    const int32_t slot = slots.as<int32_t>()[s];
    if (slot < 0) continue;
    const int32_t by = refused.as<int32_t>()[slot];
    batch.kv_len.as<int32_t>()[s] -= by;
    const int32_t *row = batch.row_start.as<int32_t>() + s, end = row[1];
    for (int32_t r = *row; r < end; ++r) batch.positions.as<int32_t>()[r] -= by;
  }
}

void HostOps::take_back(Tensor values, Tensor slots, Tensor amounts) {
  SKIFF_CHECK_EQ(values.rows(), slots.rows());
  for (int64_t i = 0; i < values.rows(); ++i) {
    const int32_t slot = slots.as<int32_t>()[i];
    if (slot >= 0) values.as<int64_t>()[i] -= amounts.as<int32_t>()[slot];
  }
}

namespace {

void settle(const DraftVerdicts& in, const DraftsSettled& out, int64_t i) {
  const int32_t slot = in.slots.as<int32_t>()[i];
  if (slot < 0) {
    out.ends.as<int32_t>()[i] = 0;
    return;
  }
  const auto* drawn = in.drawn.as<int32_t>();
  const int32_t row = in.row_start.as<int32_t>()[i], drafts = in.drafts.as<int32_t>()[i];
  const int32_t* behind = drawn + in.draws.as<int32_t>()[i];
  const int32_t* tokens = in.tokens.as<int32_t>() + row;
  auto* next = out.next.as<int32_t>() + row;
  const int32_t forced = in.kept.as<int32_t>()[i];
  int32_t kept = 0;
  for (int32_t j = 0; j <= drafts; ++j) {
    next[j] = j == 0 ? drawn[i] : behind[j - 1];
    if (j < forced) next[j] = tokens[j + 1];
    if (kept == j && j < drafts && (forced < 0 ? next[j] == tokens[j + 1] : j < forced)) ++kept;
  }
  const bool moved = in.moved_slots.rows() > 0 && in.moved_slots.as<int32_t>()[i] >= 0;
  auto* refused = out.refused.as<int32_t>() + slot;
  out.moved.as<int32_t>()[slot] = drafts - kept + (moved ? *refused : 0);
  *refused = drafts - kept;
  out.last.as<int32_t>()[slot] = next[kept];
  out.ends.as<int32_t>()[i] = row + kept;
}

}  // namespace

void HostOps::settle_drafts(const DraftVerdicts& in, const DraftsSettled& out) {
  for (int64_t i = 0; i < in.slots.rows(); ++i) settle(in, out, i);
  std::fill(out.ends.as<int32_t>() + in.slots.rows(), out.ends.as<int32_t>() + out.ends.rows(), 0);
}

}  // namespace skiff
