#include "engine/chained_passes.h"

#include <algorithm>

#include "engine/zeroed.h"

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

sched::Limits pass_limits(const sched::Limits& limits, int rows_per_seq) {
  return {.max_seqs = limits.max_seqs,
          .max_rows = std::min(limits.max_rows, limits.max_seqs * rows_per_seq),
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
  const Tensor all = zeroed(memory_, parts_.ops);  // padding has a token of the vocabulary
  next_ = all.row_range(0, rows);
  ends_ = all.row_range(rows, seqs);
  ids_ = all.row_range(rows + seqs, seqs);
  if (!options.joins) passes_.push_back(make_pass(1 + options.tokens, slots.refused()));
  for (int depth = 1; depth < options.tokens; ++depth)
    passes_.push_back(make_pass(1, slots.moved()));
}

ChainedPasses::Pass ChainedPasses::make_pass(int rows_per_seq, Tensor moved_by) const {
  const Captures captures{.sizes = options_.captures, .drafts = rows_per_seq - 1, .ragged = true};
  return {.builder =
              BatchBuilder(pass_limits(options_.limits, rows_per_seq), options_.page_size, captures,
                           parts_.ops, {.drafts = options_.tokens, .refused = moved_by}),
          .frame = {}};
}

size_t ChainedPasses::memory_bytes(const Options& options, const Ops& ops) {
  const auto pass = [&](int rows_per_seq) {
    return BatchBuilder::memory_bytes(pass_limits(options.limits, rows_per_seq), options.page_size,
                                      ops.device());
  };
  return token_bytes(options) + (options.joins ? 0 : pass(1 + options.tokens)) +
         static_cast<size_t>(options.tokens - 1) * pass(1);
}

// `tokens`: where kOnDevice is looked up; empty: nowhere.
model::Forward ChainedPasses::forward(const RaggedBatch& batch, const std::optional<ReplayKey>& key,
                                      Tensor hidden, Tensor tokens) {
  return recorded_.replay(parts_.ops, key, [&] {
    parts_.arena.reset();
    if (tokens) parts_.ops.load_tokens(batch.tokens, tokens);
    return parts_.decoder.forward(batch, parts_.kv, parts_.arena, hidden);
  });
}

// Begins a pass. A recorded one is told from those of other depths.
void ChainedPasses::begin(Pass& pass, const StepPlan& plan, int depth) const {
  pass.builder.build(plan, nullptr, pass.frame);
  if (pass.frame.key) pass.frame.key->variant = kVariant + depth;
  parts_.ops.begin_step(pass.frame.batch, pass.frame.arrivals);
}

// A model's rows lie a position behind those of the step; by how many refused drafts these moved
// back is read before the verdict replaces it.
model::Forward ChainedPasses::first(const Step& step, Tensor ends) {
  RaggedBatch batch = step.frame.batch;
  std::optional<ReplayKey> key = step.frame.key;
  if (key) key->variant = kVariant;
  if (!options_.joins) {
    begin(passes_.front(), ahead(step.plan), 0);
    batch = passes_.front().frame.batch;
    key = passes_.front().frame.key;
  }
  parts_.ops.settle_drafts(step.frame.verdicts, {.last = slots_.last(),
                                                 .refused = slots_.refused(),
                                                 .moved = slots_.moved(),
                                                 .next = next_,
                                                 .ends = ends});
  batch.tokens = next_.row_range(0, batch.num_tokens);
  batch.out_rows = ends.row_range(0, batch.num_seqs);
  return forward(batch, key, options_.joins ? step.hidden.row_range(0, batch.num_tokens) : Tensor{},
                 {});
}

void ChainedPasses::launch(const Step& step) {
  const int64_t n = std::ssize(step.plan.spans);
  draw(step, 0, first(step, ends_), ends_.row_range(0, n));
  int depth = options_.joins ? 1 : 0, joined = options_.joins ? 0 : 1;
  for (Pass& pass : passes_) {
    const StepFrame& frame = pass.frame;
    if (depth > 0) {
      begin(pass, behind(step.plan, depth + joined), depth);
      const Tensor hidden =
          options_.joins ? parts_.joined.row_range(0, frame.batch.num_tokens) : Tensor{};
      draw(step, depth, forward(frame.batch, frame.key, hidden, slots_.drafts(depth - 1)),
           frame.batch.out_rows.row_range(0, n));
    }
    pass.builder.done_with(parts_.ops.mark());
    ++depth;
  }
}

// Draws the drafts of one depth from the rows `ends` of a pass, whose hidden rows the next one
// takes.
void ChainedPasses::draw(const Step& step, int depth, const model::Forward& out, Tensor ends) {
  const int64_t n = ends.rows();
  const Tensor ids = ids_.row_range(0, n);
  parts_.ops.sample(ids, out.logits.row_range(0, n), first_rows(parts_.greedy, n));
  parts_.ops.store_tokens(slots_.drafts(depth), step.frame.verdicts.slots, ids);
  parts_.ops.copy(step.out.row_range(depth, 1).reshaped({n}), ids);
  if (options_.joins && depth + 1 < options_.tokens)
    parts_.ops.gather_rows(parts_.joined.row_range(0, n), out.hidden, ends);
}

// Returns the first pass of a model, whose tokens lie in next_.
StepPlan ChainedPasses::ahead(const StepPlan& plan) {
  StepPlan out{.spans = plan.spans,
               .tokens = std::vector<Token>(plan.tokens.size(), 0),
               .pages = plan.pages,
               .page_start = plan.page_start};
  for (Span& span : out.spans) {
    ++span.begin;
    span.draft = 0;
  }
  return out;
}

// Returns a pass over the draft before, so many positions behind the rows of the step if all drafts
// were kept.
StepPlan ChainedPasses::behind(const StepPlan& plan, int further) {
  StepPlan out{.tokens = std::vector<Token>(plan.spans.size(), kOnDevice),
               .pages = plan.pages,
               .page_start = plan.page_start};
  for (const Span& span : plan.spans)
    out.spans.push_back({.seq = span.seq,
                         .slot = span.slot,
                         .begin = span.begin + span.draft + further,
                         .count = 1,
                         .sample = true,
                         .after_drafts = true});
  return out;
}

}  // namespace skiff::engine
