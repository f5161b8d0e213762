// What a draw reports as log-probabilities by Sampler::Limits::logprobs.
#include "sample/sampler.h"

namespace skiff::sample {

// Greedy requests have neither temperature nor cuts: the draw of their edited logits at temperature
// 1 has the log-probabilities of these logits.
Sampler::Shape Sampler::shape_of(const DrawRow& row) const {
  const SamplingParams& params = slot(row.slot).state.params();
  if (checking_.how.rule == DraftRule::kGreedy || params.temperature == 0 || params.top_p == 0)
    return {};
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k};
}

// In the order in which start() keeps rows.
SampleBatch Sampler::reported_columns(Upload& upload, std::span<const DrawRow> rows) const {
  if (!is_processed(reported_)) return {};
  std::vector<int32_t> order;
  for (const auto& [top, group] : logprob_groups(rows))
    order.insert(order.end(), group.begin(), group.end());
  const auto n = std::ssize(order);
  if (n == 0) return {};
  SampleBatch batch{.temperature = upload.take(DType::kF32, {n}),
                    .top_p = upload.take(DType::kF32, {n}),
                    .min_p = upload.take(DType::kF32, {n}),
                    .top_k = upload.take(DType::kI32, {n}),
                    .seed = upload.take(DType::kI64, {n}),
                    .draw = upload.take(DType::kI64, {n})};
  for (size_t i = 0; i < order.size(); ++i) {
    const Shape shape = shape_of(rows[static_cast<size_t>(order[i])]);
    batch.temperature.as<float>()[i] = shape.temperature;
    batch.top_p.as<float>()[i] = shape.top_p;
    batch.min_p.as<float>()[i] = shape.min_p;
    batch.top_k.as<int32_t>()[i] = shape.top_k;
    batch.seed.as<int64_t>()[i] = batch.draw.as<int64_t>()[i] = 0;  // nothing is drawn
  }
  for (Tensor* t :
       {&batch.temperature, &batch.top_p, &batch.min_p, &batch.top_k, &batch.seed, &batch.draw})
    *t = upload.there(*t);
  return batch;
}

// Logits are reported from a copy on the host, because Ops::logprobs gives normalized values alone.
void Sampler::keep_logits(const PendingDraw& draw, PendingLogprobs& group, Tensor logits) {
  if (!is_of_logits(reported_)) return;
  group.logits = turns_[turn_].take(DType::kF32, {logits.rows(), vocab_});
  ops_.copy(group.logits, logits);
  if (!is_processed(reported_)) return;
  for (const int32_t row : group.rows)
    group.temperature.push_back(shape_of(draw.rows[static_cast<size_t>(row)]).temperature);
}

// Keeps the rows of logits that log-probabilities are reported of, those of each group as one
// tensor. The rules edit logits in place before what is processed is kept, and after what is raw.
std::vector<Tensor> Sampler::keep_rows(Tensor logits, const DrawColumns& columns, bool edits,
                                       PendingDraw& draw) {
  const bool processed = is_processed(reported_);
  if (edits && processed) edit(logits, draw.rows, columns.penalties);
  std::vector<Tensor> kept;
  int64_t saved = 0;
  for (auto& [top, rows] : logprob_groups(draw.rows)) {
    const bool as_they_are =
        !processed && !edits && columns.checks.row.rows() == 0 && std::ssize(rows) == logits.rows();
    kept.push_back(as_they_are ? logits : raw_rows(logits, rows, saved));
    draw.logprobs.push_back({.rows = std::move(rows), .top = top});
    keep_logits(draw, draw.logprobs.back(), kept.back());
  }
  if (edits && !processed) edit(logits, draw.rows, columns.penalties);
  if (processed && saved > 0)
    ops_.draw_logprobs(raw_.view(DType::kF32, {saved, vocab_}), columns.reported);
  return kept;
}

}  // namespace skiff::sample
