#include "sample/pending_logprobs.h"

#include <cmath>

namespace skiff::sample {
namespace {

TokenLogprob reported(const PendingLogprobs& group, int64_t row, int32_t token, float logprob) {
  if (!group.logits || !std::isfinite(logprob)) return {token, logprob};
  const float logit = group.logits.row<float>(row)[token];
  if (group.temperature.empty()) return {token, logit};
  return {token, logit / group.temperature[static_cast<size_t>(row)]};
}

}  // namespace

void look_up(Ops& ops, PinnedArena& memory, PendingLogprobs& group, Tensor logits) {
  const auto rows = logits.rows();
  group.logprob = memory.take(DType::kF32, {rows});
  group.rank = memory.take(DType::kI32, {rows});
  if (group.top > 0) {
    group.top_ids = memory.take(DType::kI32, {rows, group.top});
    group.top_logprobs = memory.take(DType::kF32, {rows, group.top});
  }
  ops.logprobs(group.logprob, group.rank, group.top_ids, group.top_logprobs, logits, group.tokens);
}

std::vector<PositionLogprobs> read(const PendingLogprobs& group) {
  std::vector<PositionLogprobs> out(group.rows.size());
  for (size_t r = 0; r < out.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    out[r] = {
        .chosen = reported(group, row, group.tokens.as<int32_t>()[r], group.logprob.as<float>()[r]),
        .rank = group.rank.as<int32_t>()[r],
        .top = {}};
    out[r].top.reserve(static_cast<size_t>(group.top));
    for (int i = 0; i < group.top; ++i)
      out[r].top.push_back(reported(group, row, group.top_ids.row<int32_t>(row)[i],
                                    group.top_logprobs.row<float>(row)[i]));
  }
  return out;
}

}  // namespace skiff::sample
