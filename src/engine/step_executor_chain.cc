// StepExecutor, where the host does not know the verdicts on drafts when the next step is launched;
// step_executor.cc has the rest.
#include <algorithm>

#include "engine/forced_drafts.h"
#include "engine/step_executor.h"

namespace skiff::engine {
namespace {

// Recorded steps that are whole are told from forward passes alone, and from those of drafters.
constexpr int kWhole = 1 << 8;

}  // namespace

// Says which drafts are kept, and drafts again, behind the draw.
void StepExecutor::chain(const StepPlan& plan, Flight& flight) {
  flight.frame.verdicts.drawn = flight.frame.draw.tokens;
  flight.drafts = draft_lists(flight.frame, flight.lists);
  drafter_->chain(
      {.plan = plan, .frame = flight.frame, .hidden = flight.hidden, .out = flight.drafts});
}

Tensor StepExecutor::draft_lists(const StepFrame& frame, PinnedArena& lists) const {
  return lists.take(DType::kI32, {chained_drafts_, frame.batch.num_seqs});
}

// The same, and the forward pass and the draw before it, as one piece of recorded work.
void StepExecutor::compute_whole(const StepPlan& plan, Flight& flight) {
  StepFrame& frame = flight.frame;
  frame.draw = sampler_.begin(frame.rows.drawn, frame.batch.num_tokens);
  flight.tokens = flight.lists.take(DType::kI32, {frame.batch.num_tokens});
  flight.drafts = draft_lists(frame, flight.lists);
  run_whole(plan, frame, flight.tokens, flight.drafts);
}

void StepExecutor::run_whole(const StepPlan& plan, StepFrame& frame, Tensor tokens, Tensor drafts) {
  frame.verdicts.drawn = frame.draw.tokens;
  ChainedPasses::Step step{.plan = plan, .frame = frame, .out = drafts};
  const Arrival results[] = {{tokens, frame.batch.tokens},
                             {frame.draw.host_tokens, frame.draw.tokens},
                             drafter_->joined_drafts(step)};
  std::optional<ReplayKey> key = frame.key;
  key->variant = kWhole;
  exchange_.expect(frame.shared_rows);
  ops_.run_step(key, {frame.batch, frame.arrivals, results}, [&] {
    arena_.reset();
    ops_.load_tokens(frame.batch.tokens, slots_.all());
    const model::Forward out = forward_layers(frame.batch);
    sampler_.draw(out.logits, frame.columns);
    step.hidden = hidden_of(out);
    drafter_->join(step);
  });
  step.joined = true;
  drafter_->chain(step);
}

// The draw is not recorded, but what is recorded reads its tokens where every draw leaves them.
void StepExecutor::record_chain(const StepPlan& plan, StepFrame& frame, const model::Forward& out) {
  PinnedArena& lists = flights_.front().lists;
  lists.reset();
  frame.draw = sampler_.begin({}, frame.batch.num_tokens);
  sampler_.draw(out.logits, frame.columns);
  frame.verdicts.drawn = frame.draw.tokens;
  drafter_->chain(
      {.plan = plan, .frame = frame, .hidden = hidden_of(out), .out = draft_lists(frame, lists)});
  ops_.wait(ops_.mark());
}

void StepExecutor::record_whole(const StepPlan& plan) {
  StepFrame& frame = flights_.front().frame;
  PinnedArena& lists = flights_.front().lists;
  for (int i = 0; i < 2; ++i) {  // the second iteration is recorded
    builder_.build(plan, nullptr, frame);
    lists.reset();
    frame.draw = sampler_.begin({}, frame.batch.num_tokens);
    const Tensor tokens = lists.take(DType::kI32, {frame.batch.num_tokens});
    run_whole(plan, frame, tokens, draft_lists(frame, lists));
    const uint64_t mark = ops_.mark();
    builder_.done_with(mark);
    ops_.wait(mark);
  }
}

// Runs two chained steps behind each other, since the first use of a kernel takes device memory.
void StepExecutor::rehearse_chain(int64_t room) {
  const int k = chained_drafts_, last = 4 + 3 * k;
  if (k == 0 || room < last || std::min(limits_.max_rows, limits_.max_logit_rows) < 1 + k) return;
  StepPlan plan{.tokens = {0}, .page_start = {0}};
  plan.spans = {{.count = 1, .sample = true}};
  for (int page = 0; page * kv_.front().page_size < last; ++page) plan.pages.push_back(page);
  plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
  plan.opened = {{.slot = 0, .params = {}, .history = {0}, .prompt_len = 1, .stop_tokens = {}}};
  const StepResult first = run(plan);
  plan.opened.clear();
  plan.chained = true;
  plan.spans = {{.begin = 1, .count = 1 + k, .draft = k, .sample = true}};
  plan.tokens = first.tokens.front();
  plan.tokens.insert(plan.tokens.end(), first.drafts.front().begin(), first.drafts.front().end());
  launch(plan);
  plan.spans.front().begin = 2 + k;
  plan.spans.front().after_drafts = true;
  plan.tokens.assign(1 + static_cast<size_t>(k), kOnDevice);
  launch(plan);
  collect();
  collect();
}

// Drafts that the host does not know are read once the step is done.
void StepExecutor::learn_guesses(Flight& flight) {
  const std::vector<sample::DrawRow>& drawn = flight.frame.rows.drawn;
  const auto unknown = [](const sample::DrawRow& row) {
    return row.depth > 0 && row.guess == kOnDevice;
  };
  if (std::ranges::none_of(drawn, unknown)) return;
  const int rows = flight.frame.batch.host_row_start.back();
  flight.tokens = flight.lists.take(DType::kI32, {rows});
  ops_.copy(flight.tokens, flight.frame.batch.tokens.row_range(0, rows));
}

void StepExecutor::finish_guesses(Flight& flight) {
  StepFrame& frame = flight.frame;
  if (flight.tokens) {
    int begin =
        0;  // the first row of the span; the frame's own arrays may be a later step's by now
    size_t span = 0;
    for (size_t i = frame.rows.num_sampled; i < frame.draw.rows.size(); ++i) {
      for (; span < frame.rows.drawn_by[i]; ++span) begin += flight.plan.spans[span].count;
      sample::DrawRow& row = frame.draw.rows[i];
      row.guess = flight.tokens.as<Token>()[begin + row.depth];
    }
  }
  if (forced_rate_) force_verdicts(*forced_rate_, flight.plan, frame.rows, frame.draw.rows);
}

// From here on the spans of the flight begin where their rows were.
void StepExecutor::note_refused(Flight& flight) {
  if (chained_drafts_ == 0) return;
  for (size_t i = 0; i < flight.plan.spans.size(); ++i) {
    Span& span = flight.plan.spans[i];
    if (!span.sample) continue;
    int& refused = refused_[static_cast<size_t>(span.slot)];
    if (std::exchange(span.after_drafts, false)) span.begin -= refused;
    refused = span.draft + 1 - static_cast<int>(flight.result.tokens[i].size());
  }
}

void StepExecutor::read_chained(Flight& flight) {
  for (std::vector<Token>& drafts : flight.result.drafts)
    drafts.reserve(static_cast<size_t>(chained_drafts_));
  for (size_t i = 0; i < flight.plan.spans.size(); ++i)
    for (int64_t depth = 0; depth < chained_drafts_; ++depth)
      flight.result.drafts[i].push_back(flight.drafts.row<Token>(depth)[static_cast<int64_t>(i)]);
  drafter_->read_chained(flight.plan, flight.result);
}

}  // namespace skiff::engine
