#include "engine/chained_passes.h"

namespace skiff::engine {
namespace {

// Recorded passes are told from those that the host waits for (BatchBuilder) and from each other.
constexpr int kVariant = 2;

int most_rows(const ChainedPasses::Options& options) {
  return options.limits.max_seqs * (1 + options.tokens);
}

size_t token_bytes(const ChainedPasses::Options& options) {
  return static_cast<size_t>(most_rows(options) + 2 * options.limits.max_seqs) * sizeof(Token);
}

// Limits of a pass behind the first.
sched::Limits pass_limits(const sched::Limits& limits) {
  return {.max_seqs = limits.max_seqs,
          .max_rows = limits.max_seqs,
          .max_context = limits.max_context,
          .max_logit_rows = limits.max_seqs};
}

}  // namespace

ChainedPasses::ChainedPasses(const Parts& parts, const Options& options, const SlotTokens& slots)
    : parts_(parts),
      options_(options),
      slots_(slots),
      memory_(parts.ops.device(), token_bytes(options)) {
  const int64_t seqs = options.limits.max_seqs, rows = most_rows(options);
  std::vector<Token> zeros(static_cast<size_t>(rows + 2 * seqs), 0);  // what padding has
  const Tensor all = memory_.view(DType::kI32, {std::ssize(zeros)});
  parts_.ops.copy(all, host_tensor(zeros.data(), DType::kI32, {std::ssize(zeros)}));
  parts_.ops.wait(parts_.ops.mark());
  next_ = all.row_range(0, rows);
  ends_ = all.row_range(rows, seqs);
  ids_ = all.row_range(rows + seqs, seqs);
  for (int depth = 1; depth < options.tokens; ++depth)
    passes_.push_back(
        {.builder = BatchBuilder(pass_limits(options.limits), options.page_size,
                                 {.sizes = options.captures, .ragged = true}, parts.ops,
                                 {.drafts = options.tokens, .refused = slots.moved()}),
         .frame = {}});
}

size_t ChainedPasses::memory_bytes(const Options& options, const Ops& ops) {
  const size_t pass =
      BatchBuilder::memory_bytes(pass_limits(options.limits), options.page_size, ops.device());
  return token_bytes(options) + static_cast<size_t>(options.tokens - 1) * pass;
}

// `tokens`: where kOnDevice is looked up; empty: nowhere. A recorded pass writes to the addresses
// that it was recorded with.
model::Forward ChainedPasses::forward(const RaggedBatch& batch, const std::optional<ReplayKey>& key,
                                      Tensor hidden, Tensor tokens) {
  model::Forward out;
  parts_.ops.replay(key, [&] {
    parts_.arena.reset();
    if (tokens) parts_.ops.load_tokens(batch.tokens, tokens);
    out = parts_.decoder.forward(batch, parts_.kv, parts_.arena, hidden);
  });
  if (!key) return out;
  model::Forward& captured = captured_[*key];
  if (out.logits) captured = out;
  return captured;
}

void ChainedPasses::launch(const Step& step) {
  RaggedBatch batch = step.frame.batch;
  batch.tokens = next_.row_range(0, batch.num_tokens);
  batch.out_rows = ends_.row_range(0, batch.num_seqs);
  const int64_t n = std::ssize(step.plan.spans);
  parts_.ops.settle_drafts(step.drafts, {.last = slots_.last(),
                                         .refused = slots_.refused(),
                                         .moved = slots_.moved(),
                                         .next = batch.tokens,
                                         .ends = batch.out_rows});
  std::optional<ReplayKey> key = step.frame.key;
  if (key) key->variant = kVariant;
  draw(step, 0, forward(batch, key, step.hidden.row_range(0, batch.num_tokens), {}),
       ends_.row_range(0, n));
  int depth = 0;
  for (Pass& pass : passes_) {
    ++depth;
    StepFrame& frame = pass.frame;
    pass.builder.build(behind(step.plan, depth), nullptr, frame);
    if (frame.key) frame.key->variant = kVariant + depth;
    parts_.ops.begin_step(frame.batch, frame.arrivals);
    const Tensor hidden = parts_.joined.row_range(0, frame.batch.num_tokens);
    draw(step, depth, forward(frame.batch, frame.key, hidden, slots_.drafts(depth - 1)),
         frame.batch.out_rows.row_range(0, n));
    pass.builder.done_with(parts_.ops.mark());
  }
}

// Draws the drafts of one depth from the rows `ends` of a pass, whose hidden rows the next one
// takes.
void ChainedPasses::draw(const Step& step, int depth, const model::Forward& out, Tensor ends) {
  const int64_t n = ends.rows();
  const Tensor ids = ids_.row_range(0, n);
  const SampleBatch& all = parts_.greedy;
  const auto of = [n](Tensor column) { return column.row_range(0, n); };
  parts_.ops.sample(ids, out.logits.row_range(0, n),
                    {.temperature = of(all.temperature),
                     .top_p = of(all.top_p),
                     .min_p = of(all.min_p),
                     .top_k = of(all.top_k),
                     .seed = of(all.seed),
                     .draw = of(all.draw)});
  parts_.ops.store_tokens(slots_.drafts(depth), step.drafts.slots, ids);
  parts_.ops.copy(step.out.row_range(depth, 1).reshaped({n}), ids);
  if (depth + 1 < options_.tokens)
    parts_.ops.gather_rows(parts_.joined.row_range(0, n), out.hidden, ends);
}

// Returns a pass over the draft before the one of that depth, as far forward as it may stand.
StepPlan ChainedPasses::behind(const StepPlan& plan, int depth) const {
  StepPlan out{.tokens = std::vector<Token>(plan.spans.size(), kOnDevice),
               .pages = plan.pages,
               .page_start = plan.page_start};
  for (const Span& span : plan.spans)
    out.spans.push_back({.seq = span.seq,
                         .slot = span.slot,
                         .begin = span.begin + span.draft + depth,
                         .count = 1,
                         .sample = true,
                         .after_drafts = true});
  return out;
}

}  // namespace skiff::engine
