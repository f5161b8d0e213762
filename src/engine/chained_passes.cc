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

// A recorded pass is told from those of other depths.
void ChainedPasses::build(Pass& pass, const StepPlan& plan, int depth) const {
  pass.builder.build(plan, nullptr, pass.frame);
  if (pass.frame.key) pass.frame.key->variant = kVariant + depth;
}

// Settles the step; returns `batch` with the tokens and the ends that follow from the verdicts.
RaggedBatch ChainedPasses::settle(const Step& step, RaggedBatch batch) {
  const Tensor ends = ends_.row_range(0, std::max(batch.num_seqs, step.frame.batch.num_seqs));
  parts_.ops.settle_drafts(step.frame.verdicts, {.last = slots_.last(),
                                                 .refused = slots_.refused(),
                                                 .moved = slots_.moved(),
                                                 .next = next_,
                                                 .ends = ends});
  batch.tokens = next_.row_range(0, batch.num_tokens);
  batch.out_rows = ends.row_range(0, batch.num_seqs);
  return batch;
}

// Computes a pass, and draws the drafts of one depth from its out_rows, whose hidden rows the next
// pass of a module takes.
void ChainedPasses::draft(const RaggedBatch& batch, Tensor hidden, Tensor slots, int depth) {
  parts_.arena.reset();
  const model::Forward out = parts_.decoder.forward(batch, parts_.kv, parts_.arena, hidden);
  const int64_t n = slots.rows();
  const Tensor ids = ids_.row_range(0, n);
  parts_.ops.sample(ids, out.logits.row_range(0, n), first_rows(parts_.greedy, n));
  parts_.ops.store_tokens(slots_.drafts(depth), slots, ids);
  if (options_.joins && depth + 1 < options_.tokens)
    parts_.ops.gather_rows(parts_.joined.row_range(0, n), out.hidden,
                           batch.out_rows.row_range(0, n));
}

Arrival ChainedPasses::drafts_of(const Step& step, int64_t seqs, int depth) const {
  const int64_t n = std::min(seqs, step.out.cols());
  return {step.out.row_range(depth, 1).reshaped({step.out.cols()}).row_range(0, n),
          ids_.row_range(0, n)};
}

void ChainedPasses::join(const Step& step) {
  if (!options_.joins) return;
  const RaggedBatch& rows = step.frame.batch;
  Tensor hidden = step.hidden.row_range(0, rows.num_tokens);
  if (parts_.combined) {
    const Tensor combined = parts_.combined.row_range(0, rows.num_tokens);
    parts_.decoder.combine(combined, hidden);
    hidden = combined;
  }
  draft(settle(step, rows), hidden, step.frame.verdicts.slots, 0);
}

Arrival ChainedPasses::joined_drafts(const Step& step) const {
  return options_.joins ? drafts_of(step, step.frame.verdicts.slots.rows(), 0) : Arrival{};
}

void ChainedPasses::first_of_module(const Step& step) {
  std::optional<ReplayKey> key = step.frame.key;
  if (key) key->variant = kVariant;
  parts_.ops.replay(key, [&] { join(step); });
  const Arrival drafts = joined_drafts(step);
  parts_.ops.copy(drafts.to, drafts.from);
}

// A model's rows lie a position behind those of the step; by how many refused drafts these moved
// back is read before the verdict replaces it.
void ChainedPasses::first_of_model(const Step& step, Pass& pass) {
  build(pass, ahead(step.plan), 0);
  const StepFrame& frame = pass.frame;
  parts_.ops.begin_step(frame.batch, frame.arrivals);
  const RaggedBatch batch = settle(step, frame.batch);
  parts_.ops.replay(frame.key, [&] { draft(batch, {}, frame.slots, 0); });
  const Arrival drafts = drafts_of(step, frame.slots.rows(), 0);
  parts_.ops.copy(drafts.to, drafts.from);
}

void ChainedPasses::further(const Step& step, Pass& pass, int depth) {
  build(pass, behind(step.plan, depth + (options_.joins ? 0 : 1)), depth);
  const StepFrame& frame = pass.frame;
  const Tensor hidden =
      options_.joins ? parts_.joined.row_range(0, frame.batch.num_tokens) : Tensor{};
  const Arrival drafts = drafts_of(step, frame.slots.rows(), depth);
  parts_.ops.run_step(frame.key, {frame.batch, frame.arrivals, {&drafts, 1}}, [&] {
    parts_.ops.load_tokens(frame.batch.tokens, slots_.drafts(depth - 1));
    draft(frame.batch, hidden, frame.slots, depth);
  });
}

void ChainedPasses::launch(const Step& step) {
  if (options_.joins && !step.joined) first_of_module(step);
  int depth = options_.joins ? 1 : 0;
  for (Pass& pass : passes_) {
    if (depth == 0)
      first_of_model(step, pass);
    else
      further(step, pass, depth);
    pass.builder.done_with(parts_.ops.mark());
    ++depth;
  }
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
