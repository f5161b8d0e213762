// What ModelDrafter draws from a pass; model_drafter.cc has the rest.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/model_drafter.h"

namespace skiff::engine {

// Returns how the n spans of the pass that sample are drawn, numbered by the positions of the
// drafts.
SampleBatch ModelDrafter::draws(const Pass& pass, int64_t n) {
  SampleBatch out = first_rows(greedy_, n);
  if (draft_probs_.rows() == 0) return out;
  for (Tensor* t : {&out.temperature, &out.top_p, &out.min_p, &out.top_k, &out.seed, &out.draw})
    *t = lists_.take(t->dtype, {n});
  int64_t i = 0;
  for (const Span& span : pass.plan.spans) {
    if (!span.sample) continue;
    const DrawParams& draw = slots_[static_cast<size_t>(span.slot)]->draw;
    out.temperature.as<float>()[i] = draw.temperature;
    out.top_p.as<float>()[i] = draw.top_p;
    out.min_p.as<float>()[i] = draw.min_p;
    out.top_k.as<int32_t>()[i] = draw.top_k;
    out.seed.as<int64_t>()[i] = static_cast<int64_t>(draw.seed);
    out.draw.as<int64_t>()[i++] = span.begin + span.count;
  }
  return out;
}

// Overwrites the logits of a pass. Rows of slots next to each other are copied together.
void ModelDrafter::keep_draft_probs(const Pass& pass, int depth, Tensor logits,
                                    const SampleBatch& batch) {
  if (draft_probs_.rows() == 0) return;
  ops_.draw_logprobs(logits, batch);
  const int64_t first = depth * (draft_probs_.rows() / tokens_);
  std::vector<int64_t> slots;
  for (const Span& span : pass.plan.spans)
    if (span.sample) slots.push_back(span.slot);
  for (size_t begin = 0, end = 0; begin < slots.size(); begin = end) {
    while (end < slots.size() && slots[end] - slots[begin] == static_cast<int64_t>(end - begin))
      ++end;
    const auto count = static_cast<int64_t>(end - begin);
    ops_.copy(draft_probs_.row_range(first + slots[begin], count),
              logits.row_range(static_cast<int64_t>(begin), count));
  }
}

// Returns the token that a row of logits at that place stands for.
Token ModelDrafter::token_of(Token logit) const {
  return vocabulary_.empty() ? logit : vocabulary_[static_cast<size_t>(logit)];
}

// Starts computing the log-probabilities that are requested. Spans next to each other that request
// as many are looked up together.
std::vector<sample::PendingLogprobs> ModelDrafter::look_up(const Pass& pass, Tensor logits,
                                                           Tensor drafts) {
  std::vector<int> tops;
  for (const Span& span : pass.plan.spans)
    if (span.sample) tops.push_back(std::min(span.draft_logprobs, static_cast<int>(logits.cols())));
  std::vector<sample::PendingLogprobs> pending;
  for (size_t begin = 0, end = 0; begin < tops.size(); begin = end) {
    while (end < tops.size() && tops[end] == tops[begin]) ++end;
    if (tops[begin] < 0) continue;
    const auto first = static_cast<int64_t>(begin), count = static_cast<int64_t>(end) - first;
    sample::PendingLogprobs& group = pending.emplace_back();
    group.rows.resize(static_cast<size_t>(count));
    std::iota(group.rows.begin(), group.rows.end(), static_cast<int32_t>(begin));
    group.top = tops[begin];
    group.tokens = drafts.row_range(first, count);
    sample::look_up(ops_, lists_, group, logits.row_range(first, count));
  }
  return pending;
}

// Returns the token that is drafted behind each span that samples.
ModelDrafter::Drafted ModelDrafter::compute(const Pass& pass, int depth, Tensor hidden) {
  const model::Forward out = forward(build(pass, hidden));
  const auto n = static_cast<int64_t>(frame_.rows.num_sampled);
  const Tensor ids = ids_memory_.view(DType::kI32, {n}), drafts = lists_.take(DType::kI32, {n});
  const Tensor logits = out.logits.row_range(0, n);
  const SampleBatch batch = draws(pass, n);
  if (n > 0) {
    ops_.sample(ids, logits, batch);
    if (spec_.joins)
      ops_.gather_rows(carried_.view(act_, {n, spec_.hidden}), out.hidden,
                       frame_.batch.out_rows.row_range(0, n));
    ops_.copy(drafts, ids);
  }
  const std::vector<sample::PendingLogprobs> pending = look_up(pass, logits, drafts);
  if (n > 0) keep_draft_probs(pass, depth, logits, batch);
  end_pass();
  ops_.wait(*pass_);
  Drafted drafted{.tokens = {drafts.as<Token>(), drafts.as<Token>() + n}, .logprobs = {}};
  for (Token& token : drafted.tokens) token = token_of(token);
  drafted.logprobs.resize(static_cast<size_t>(n));
  for (const sample::PendingLogprobs& group : pending) {
    std::vector<PositionLogprobs> found = sample::read(group);
    for (size_t i = 0; i < found.size(); ++i) {
      found[i].chosen.token = token_of(found[i].chosen.token);
      for (TokenLogprob& one : found[i].top) one.token = token_of(one.token);
      drafted.logprobs[static_cast<size_t>(group.rows[i])] = std::move(found[i]);
    }
  }
  return drafted;
}

}  // namespace skiff::engine
