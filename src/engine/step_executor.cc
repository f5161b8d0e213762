#include "engine/step_executor.h"

#include <chrono>
#include <utility>

#include "base/seconds.h"
#include "draft/settings.h"
#include "engine/forced_drafts.h"
#include "engine/rehearsal.h"

namespace skiff::engine {
namespace {

using Clock = std::chrono::steady_clock;

// How many tokens are drafted behind a chained step.
int chained_drafts_of(const StepExecutor::Options& options) {
  const bool chains = options.chains && options.drafter != nullptr && options.drafter->chains();
  return chains ? options.drafter->tokens() : 0;
}

StepBounds bounds_of(const ModelSpec& spec, DType act, const std::vector<WeightFormat>& formats,
                     const sched::Limits& limits) {
  return {.spec = spec,
          .act = act,
          .max_rows = limits.max_rows,
          .max_logit_rows = limits.max_logit_rows,
          .max_seqs = limits.max_seqs,
          .max_context = limits.max_context,
          .formats = formats};
}

bool generates(const ModelSpec& spec) { return spec.head == HeadKind::kVocab; }

// A model that cannot generate draws nothing.
sample::Sampler::Limits sampler_limits(const ModelSpec& spec, const sched::Limits& limits,
                                       LogprobsMode logprobs = LogprobsMode::kRawLogprobs) {
  return {.vocab = generates(spec) ? spec.vocab : 1,
          .max_slots = limits.max_seqs,
          .max_rows = limits.max_logit_rows,
          .max_context = limits.max_context,
          .logprobs = logprobs};
}

// Steps are tuned for row counts from this one on; a recorded step of at most this many rows is
// tuned at its own size.
constexpr int kMinTuned = 64;

// The positions that a sequence may have in so many blocks.
int64_t room_of(const sched::Limits& limits, int blocks, int page) {
  return std::min<int64_t>(limits.max_context, int64_t{blocks} * page);
}

int most_rows(const sched::Limits& limits, int64_t room) {
  return static_cast<int>(std::min<int64_t>(limits.max_rows, room * limits.max_seqs));
}

// Returns a plan of `rows` rows for rehearsal, `length` rows per sequence, the last `drafts` of
// which are drafts; behind it `chained` tokens are drafted without the host. All sequences use the
// same blocks, whose contents do not matter.
StepPlan blank_step(int rows, int length, int block_size, int drafts = 0, int chained = 0) {
  StepPlan plan{.tokens = std::vector<Token>(static_cast<size_t>(rows), 0),
                .page_start = {0},
                .chained = chained > 0};
  for (int row = 0; row < rows; row += length) {
    const int count = std::min(length, rows - row);
    const auto slot = static_cast<int>(plan.spans.size());
    plan.spans.push_back({.seq = static_cast<SeqId>(slot),
                          .slot = slot,
                          .count = count,
                          .draft = drafts,
                          .sample = count == 1 + drafts});
    const int positions = count + chained;  // the most that a drafter reaches
    for (int page = 0; page * block_size < positions; ++page) plan.pages.push_back(page);
    plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
  }
  return plan;
}

}  // namespace

StepExecutor::StepExecutor(const model::LoadedModel& model, Ops& ops, comm::Mesh& mesh,
                           std::span<const KvLayer> kv, Options options)
    : kv_(kv),
      drafter_(options.drafter),
      forced_rate_(options.forced_rate),
      check_(options.check),
      chained_drafts_(chained_drafts_of(options)),
      ops_(ops),
      copies_(options.host, kv, ops),
      exchange_(*mesh.experts),
      limits_(options.limits),
      arena_(Buffer(ops.device(),
                    model::Decoder::arena_bytes(model.spec, options.act, limits_.max_rows,
                                                limits_.max_logit_rows, ops))),
      decoder_(model.spec, model.weights, ops, mesh, options.act),
      slots_(limits_.max_seqs, chained_drafts_, ops),
      sampler_(sampler_limits(model.spec, limits_, options.logprobs), ops,
               {.how = options.check,
                .draft_probs = drafter_ != nullptr ? drafter_->draft_probs() : Tensor{},
                .drafts_per_slot = drafter_ != nullptr ? drafter_->drafts_per_slot() : 0,
                .refused = slots_.refused()}),
      pooler_(limits_.max_seqs, ops),
      builder_(limits_, kv.front().page_size, std::move(options.captures), ops,
               {.drafts = chained_drafts_,
                .refused = slots_.refused(),
                .forced_rate = options.forced_rate}),
      refused_(static_cast<size_t>(limits_.max_seqs), 0) {
  if (chained_drafts_ > 0) drafter_->begin_chain(slots_);
  ops.reserve(bounds_of(model.spec, options.act, options.formats, limits_));
}

size_t StepExecutor::scratch_bytes(const ModelSpec& spec, DType act,
                                   const std::vector<WeightFormat>& formats,
                                   const sched::Limits& limits, int block_size, const Ops& ops) {
  return ops.scratch_bytes(bounds_of(spec, act, formats, limits)) +
         BatchBuilder::memory_bytes(limits, block_size, ops.device()) +
         sample::Sampler::bytes(ops.device(), sampler_limits(spec, limits)) +
         (ops.device() == Device{} ? sample::Sampler::pinned_bytes(limits.max_logit_rows) : 0) +
         (ops.device() == Device{} && !limits.generates
              ? Pooler::memory_bytes(limits.max_rows, spec.hidden, act)
              : 0) +
         SlotTokens::bytes(limits.max_seqs, draft::kMaxTokens);
}

// Calls f(plan) for every step that is recorded.
template <class F>
void StepExecutor::for_each_captured(F f) const {
  const int page = kv_.front().page_size;
  const Captures& captures = builder_.captures();
  for (const int size : captures.sizes) {
    f(blank_step(size, 1, page, 0, chained_drafts_));
    for (int draft = 1; draft <= captures.drafts; ++draft)
      if (builder_.captured_seqs(size, 1 + draft) == size)
        f(blank_step(size * (1 + draft), 1 + draft, page, draft, chained_drafts_));
  }
}

void StepExecutor::tune(int blocks) {
  if (ops_.device() == Device{}) return;
  const int page = kv_.front().page_size;
  const int64_t room = room_of(limits_, blocks, page);
  const int most = most_rows(limits_, room);
  const auto rehearse_rows = [&](int rows) {
    rehearse(blank_step(rows, static_cast<int>(std::min<int64_t>(rows, room)), page));
  };
  for (int rows = kMinTuned; rows < most; rows *= 2) rehearse_rows(rows);
  rehearse_rows(most);
  if (drafter_ != nullptr) rehearse_long_pass(most + ModelDrafter::more_rows(limits_), room);
  // A decode step has one row of logits per sequence, so the LM head is tuned for those sizes too.
  const int seqs = std::min(limits_.max_seqs, limits_.max_rows);
  for (int size = 2 * kMinTuned; size < 2 * seqs; size *= 2)
    rehearse(blank_step(std::min(size, seqs), 1, page));
  for_each_captured([&](const StepPlan& plan) {
    if (std::ssize(plan.tokens) <= kMinTuned) rehearse(plan);
  });
  ops_.wait(ops_.mark());
}

void StepExecutor::record(int blocks) {
  if (ops_.device() == Device{}) return;
  for_each_captured([&](const StepPlan& plan) { record(plan); });
  if (chained_drafts_ > 0) for_each_captured([&](const StepPlan& plan) { record_whole(plan); });
  if (drafter_ != nullptr) drafter_->record();
  ops_.wait(ops_.mark());
  if (!limits_.generates) return;
  if (drafter_ != nullptr) {
    const int page = kv_.front().page_size;
    const int64_t room = room_of(limits_, blocks, page);
    const int most = most_rows(limits_, room);
    rehearse_drafts(blank_step(most, std::min<int64_t>(most, room), page));
    rehearse_chain(room);
  }
  for (const int rows : {1, limits_.max_seqs}) rehearse_draws(rows);
}

// Runs the plan as a step of prompts, of which each has one token more, so that the drafter reads
// on in all of them.
void StepExecutor::rehearse_drafts(StepPlan plan) {
  for (const Span& span : plan.spans)
    plan.opened.push_back({.slot = span.slot,
                           .params = {},
                           .history = std::vector<Token>(static_cast<size_t>(span.count) + 1, 0),
                           .prompt_len = span.count + 1,
                           .stop_tokens = {}});
  run(plan);
}

void StepExecutor::record(const StepPlan& plan) {
  StepFrame& frame = flights_.front().frame;
  for (int i = 0; i < 2; ++i) {  // the second iteration is recorded
    builder_.build(plan, nullptr, frame);
    const model::Forward out = forward(frame);
    if (plan.chained) record_chain(plan, frame, out);
    builder_.done_with(ops_.mark());
  }
}

// Runs every kind of draw that a request may need once: the first use of a kernel takes device
// memory, and later there may be none left.
void StepExecutor::rehearse_draws(int rows) {
  const int page = kv_.front().page_size;
  for (const float temperature : {0.0f, 0.7f}) {
    StepPlan draws = blank_step(rows, 1, page);
    for (const Span& span : draws.spans)
      draws.opened.push_back({.slot = span.slot,
                              .params = {.temperature = temperature,
                                         .top_p = 0.9f,
                                         .min_p = 0.01f,
                                         .top_k = 20,
                                         .repetition = 1.1f,
                                         .logprobs = 2,
                                         .logit_bias = {{0, 1.0f}}},
                              .history = {0},
                              .prompt_len = 1,
                              .stop_tokens = {}});
    run(draws);
  }
  if (std::min(limits_.max_rows, limits_.max_context) < 2) return;
  StepPlan prompt = blank_step(2, 2, page);
  prompt.spans.front().prompt_logprobs = 1;
  prompt.spans.front().next = 0;
  run(prompt);
  if (check_.rule == DraftRule::kTargetMatch || limits_.max_logit_rows < 2) return;
  StepPlan drafts = blank_step(2, 2, page, /*drafts=*/1);
  drafts.opened.push_back(
      {.slot = 0, .params = {}, .history = {0}, .prompt_len = 1, .stop_tokens = {}});
  run(drafts);
}

// The drafter's passes behind such a step are rehearsed, too.
void StepExecutor::rehearse(const StepPlan& plan) {
  StepFrame& frame = flights_.front().frame;
  builder_.build(plan, nullptr, frame);
  ops_.begin_step(frame.batch, frame.arrivals);
  model::Forward out;
  engine::rehearse(ops_, [&] {
    arena_.reset();
    out = forward_layers(frame.batch);
  });
  builder_.done_with(ops_.mark());
  if (drafter_ != nullptr) drafter_->rehearse(plan, hidden_of(out));
}

// A pass of the drafter may have more rows than any step.
void StepExecutor::rehearse_long_pass(int rows, int64_t room) {
  const int64_t most = std::min<int64_t>(rows, room * limits_.max_seqs);
  drafter_->rehearse(blank_step(static_cast<int>(most), static_cast<int>(std::min(most, room)),
                                kv_.front().page_size),
                     {});
}

void StepExecutor::launch(const StepPlan& plan, std::span<const RoundPart> round) {
  SKIFF_CHECK(in_flight_ < flights_.size(), "two steps are in flight already");
  if (in_flight_ > 0 && !flights_[oldest_].kept && !flights_[oldest_].plan.chained)
    draft(flights_[oldest_]);
  Flight& flight = flights_[(oldest_ + in_flight_) % flights_.size()];
  flight = {.frame = std::move(flight.frame),
            .result = {.step = plan.step},
            .start = Clock::now(),
            .plan = std::move(flight.plan),
            .lists = std::move(flight.lists)};
  flight.frame.clear();
  flight.lists.reset();
  if (drafter_ != nullptr || forced_rate_) flight.plan = plan;
  flight.copies = copies_.start(plan);
  if (!plan.spans.empty()) compute(plan, round, flight);
  keep(plan, flight);
  flight.mark = ops_.mark();
  if (!plan.spans.empty()) builder_.done_with(flight.mark);
  flight.launched = Clock::now();
  ++in_flight_;
}

// Tokens are drafted behind the last step before its hidden rows are overwritten.
void StepExecutor::run_empty(std::span<const RoundPart> round) {
  if (drafter_ != nullptr && in_flight_ > 0) {
    Flight& last = flights_[(oldest_ + in_flight_ - 1) % flights_.size()];
    if (!last.kept && !last.plan.chained) {
      finish_earlier();
      draft(last);
    }
  }
  builder_.build({}, nullptr, empty_, round);
  forward(empty_);
  builder_.done_with(ops_.mark());
}

void StepExecutor::compute(const StepPlan& plan, std::span<const RoundPart> round, Flight& flight) {
  for (const OpenSlot& slot : plan.opened) {
    pooler_.open(slot);
    if (!slot.pooling) sampler_.open(slot);
  }
  builder_.build(plan, &sampler_, flight.frame, round);
  const size_t spans = flight.spans = plan.spans.size();
  flight.result.tokens.resize(spans);
  flight.result.drafts.resize(spans);
  flight.result.logprobs.resize(spans);
  flight.result.prompt_logprobs.resize(spans);
  if (flight.frame.whole) return compute_whole(plan, flight);
  const model::Forward out = forward(flight.frame);
  const Tensor logits = out.logits;
  flight.hidden = hidden_of(out);
  learn_guesses(flight);
  report_prompts(plan, logits, flight);
  pooler_.start(plan, flight.frame.batch, out, flight.frame.rows.pools, pooled_of(flight));
  sample(logits, flight);
  check_by_depth(plan, logits, flight);
  if (plan.chained) chain(plan, flight);
}

model::Forward StepExecutor::forward_layers(const RaggedBatch& batch) {
  return decoder_.forward(batch, kv_.first(decoder_.layers()), arena_);
}

model::Forward StepExecutor::forward(const StepFrame& frame) {
  ops_.begin_step(frame.batch, frame.arrivals);
  exchange_.expect(frame.shared_rows);
  return recorded_.replay(ops_, frame.key, [&] {
    arena_.reset();
    ops_.load_tokens(frame.batch.tokens, slots_.all());
    return forward_layers(frame.batch);
  });
}

PooledStep& StepExecutor::pooled_of(const Flight& flight) {
  return pooled_[static_cast<size_t>(&flight - flights_.data())];
}

StepResult StepExecutor::collect() {
  SKIFF_CHECK(in_flight_ > 0, "no step is in flight");
  Flight& flight = flights_[oldest_];
  ops_.wait(flight.mark);
  finish_draw(flight);
  draft(flight);
  pooler_.finish(pooled_of(flight), flight.spans, flight.result);
  oldest_ = (oldest_ + 1) % flights_.size();
  --in_flight_;
  // A device computes asynchronously: its step begins once the previous step has ended.
  const auto end = ops_.device() == Device{} ? flight.launched : Clock::now();
  flight.result.seconds = seconds(end - std::max(flight.start, ended_));
  ended_ = end;
  copies_.finish(flight.copies, flight.result);
  return std::move(flight.result);
}

// Finishes the draw of the earlier step in flight, because draws must be finished in the order in
// which they were started.
void StepExecutor::finish_earlier() {
  if (in_flight_ == 0) return;
  Flight& earlier = flights_[oldest_];
  ops_.wait(earlier.mark);
  finish_draw(earlier);
}

void StepExecutor::finish_draw(Flight& flight) {
  const LogitRows& rows = flight.frame.rows;
  if (std::exchange(flight.drawn, true) || rows.drawn.empty()) return;
  finish_guesses(flight);
  sample::SampleOutput out = sampler_.finish(flight.frame.draw);
  for (size_t i = 0; i < rows.drawn.size(); ++i) gain(rows.drawn_by[i], out, i, flight.result);
  note_refused(flight);
}

// Keeps what the drafter needs, where it can wait for the step's tokens. Behind a chained step that
// is in flight it does not know yet where the rows stand.
void StepExecutor::keep(const StepPlan& plan, Flight& flight) {
  const bool certain = in_flight_ == 0 || !flights_[oldest_].plan.chained;
  flight.kept = drafter_ != nullptr && !plan.spans.empty() && !plan.chained && certain &&
                drafter_->can_wait(plan);
  if (flight.kept) drafter_->keep(plan, flight.hidden);
}

// Called while the step is the last one that was launched, unless its hidden rows are kept: a later
// one overwrites them.
void StepExecutor::draft(Flight& flight) {
  if (drafter_ == nullptr || std::exchange(flight.drafted, true) || flight.plan.spans.empty())
    return;
  ops_.wait(flight.mark);
  finish_draw(flight);
  if (flight.plan.chained) return read_chained(flight);
  drafter_->draft(flight.plan, flight.kept ? Tensor{} : flight.hidden, flight.result);
}

void StepExecutor::report_prompts(const StepPlan& plan, Tensor logits, Flight& flight) {
  for (const LogitRows::Range& range : flight.frame.rows.prompts) {
    const Span& span = plan.spans[range.span];
    const auto begin = plan.tokens.begin() + range.row + 1;
    std::vector<Token> next(begin, begin + span.count - 1);
    if (!span.sample) next.push_back(span.next);
    flight.result.prompt_logprobs[range.span] = sampler_.prompt_logprobs(
        logits.row_range(range.begin, range.count), next, span.prompt_logprobs);
  }
}

// If a slot's rules depend on its earlier output, the host waits here for its last token, while the
// device computes this step's forward pass.
void StepExecutor::sample(Tensor logits, Flight& flight) {
  StepFrame& frame = flight.frame;
  if (frame.rows.drawn.empty()) return;
  if (sampler_.needs_pending(frame.rows.drawn)) finish_earlier();
  frame.draw = sampler_.start(logits, frame.rows.drawn, frame.columns);
  const auto sampled = static_cast<int64_t>(frame.rows.num_sampled);
  ops_.store_tokens(slots_.last(), frame.slots.row_range(0, sampled),
                    frame.draw.tokens.row_range(0, sampled));
}

// A draft is kept while it equals the token that the sampler draws in its place, so the text is the
// same as without drafts. This checks the drafts of sequences whose rules depend on earlier drafts.
void StepExecutor::check_by_depth(const StepPlan& plan, Tensor logits, Flight& flight) {
  if (flight.frame.rows.by_depth.empty()) return;
  finish_earlier();
  ops_.wait(ops_.mark());
  finish_draw(flight);
  for (int depth = 0; draw_depth(plan, logits, depth, flight);) ++depth;
}

// Draws the next token of every sequence whose drafts are right up to and including the one at
// `depth`. Returns false if there is no such sequence.
bool StepExecutor::draw_depth(const StepPlan& plan, Tensor logits, int depth, Flight& flight) {
  const std::vector<LogitRows::Range>& ranges = flight.frame.rows.by_depth;
  const int begin = ranges.front().begin;
  std::vector<size_t> spans;
  std::vector<sample::DrawRow> drawn;
  std::vector<int32_t> from;
  for (const LogitRows::Range& range : ranges) {
    const std::vector<Token>& got = flight.result.tokens[range.span];
    const int row = range.row + depth;
    const bool right = depth < range.count && std::ssize(got) == depth + 1 &&
                       got.back() == plan.tokens[static_cast<size_t>(row)];
    if (!right) continue;
    spans.push_back(range.span);
    drawn.push_back({.slot = plan.spans[range.span].slot});
    from.push_back(range.begin + depth - begin);
  }
  if (spans.empty()) return false;
  depth_rows_.reset();
  const Tensor index = depth_rows_.take(DType::kI32, {std::ssize(from)});
  std::ranges::copy(from, index.as<int32_t>());
  // The first draw no longer needs its logits, and it had at least as many rows, so they are
  // overwritten.
  const Tensor next = logits.row_range(0, std::ssize(from));
  ops_.gather_rows(next, logits.row_range(begin, logits.rows() - begin), index);
  sample::SampleOutput out = sampler_.sample(next, drawn);
  for (size_t i = 0; i < spans.size(); ++i) gain(spans[i], out, i, flight.result);
  return true;
}

void StepExecutor::gain(size_t span, sample::SampleOutput& out, size_t row, StepResult& result) {
  if (out.tokens[row] == sample::kNoToken) return;
  constexpr size_t kUsual = 2;  // with one draft no sequence gains more
  std::vector<Token>& tokens = result.tokens[span];
  if (tokens.empty()) tokens.reserve(kUsual);
  tokens.push_back(out.tokens[row]);
  if (out.logprobs[row]) result.logprobs[span].push_back(std::move(*out.logprobs[row]));
}

}  // namespace skiff::engine
