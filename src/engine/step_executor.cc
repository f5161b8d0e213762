#include "engine/step_executor.h"

#include <chrono>
#include <utility>

#include "base/seconds.h"

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;

Tensor zeroed_slots(const Buffer& memory, int max_seqs, Ops& ops) {
  std::vector<Token> zeros(static_cast<size_t>(max_seqs), 0);
  const Tensor out = memory.view(DType::kI32, {max_seqs});
  ops.copy(out, host_tensor(zeros.data(), DType::kI32, {max_seqs}));
  ops.wait(ops.mark());
  return out;
}

StepBounds bounds_of(const ModelSpec& spec, DType act, const Limits& limits) {
  return {.spec = spec,
          .act = act,
          .max_rows = limits.max_rows,
          .max_logit_rows = limits.max_logit_rows,
          .max_seqs = limits.max_seqs,
          .max_context = limits.max_context};
}

constexpr int kFewestTuned = 64;  // rows of prompts; decodes of fewer are rehearsed as they are

// `rows` rows, `length` to a sequence, all on the same blocks: what they hold does not matter.
StepPlan blank_step(int rows, int length, int block_size) {
  StepPlan plan{.tokens = std::vector<Token>(static_cast<size_t>(rows), 0), .page_start = {0}};
  for (int row = 0; row < rows; row += length) {
    const int count = std::min(length, rows - row);
    const auto slot = static_cast<int>(plan.spans.size());
    plan.spans.push_back(
        {.seq = static_cast<SeqId>(slot), .slot = slot, .count = count, .sample = count == 1});
    for (int page = 0; page * block_size < count; ++page) plan.pages.push_back(page);
    plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
  }
  return plan;
}

}  // namespace

StepExecutor::StepExecutor(const LoadedModel& model, Ops& ops, std::span<const KvLayer> kv,
                           DType act, const Limits& limits, HostBlocks* host,
                           std::vector<int> capture_sizes)
    : kv_(kv),
      host_(host),
      ops_(ops),
      limits_(limits),
      mesh_(make_solo_mesh()),
      arena_(Buffer(ops.device(), Decoder::arena_bytes(model.spec, act, limits.max_rows,
                                                       limits.max_logit_rows, ops))),
      decoder_(model.spec, model.weights, ops, mesh_, act),
      sampler_(model.spec.vocab, limits.max_seqs, ops),
      captured_(capture_sizes.empty() ? 0 : static_cast<size_t>(capture_sizes.back()) + 1),
      builder_(limits, kv.front().page_size, std::move(capture_sizes), ops,
               Sampler::column_bytes(limits.max_seqs)),
      last_memory_(ops.device(), static_cast<size_t>(limits.max_seqs) * sizeof(Token)),
      last_(zeroed_slots(last_memory_, limits.max_seqs, ops)) {
  ops.reserve(bounds_of(model.spec, act, limits));
}

size_t StepExecutor::scratch_bytes(const ModelSpec& spec, DType act, const Limits& limits,
                                   int block_size, const Ops& ops) {
  return ops.scratch_bytes(bounds_of(spec, act, limits)) +
         BatchBuilder::memory_bytes(limits, block_size, ops.device(),
                                    Sampler::column_bytes(limits.max_seqs)) +
         Sampler::bytes(ops.device(), spec.vocab, limits.max_seqs) +
         (ops.device() == Device{} ? Sampler::pinned_bytes(limits.max_seqs) : 0) +
         static_cast<size_t>(limits.max_seqs) * sizeof(Token);
}

void StepExecutor::warm_up(int blocks) {
  if (ops_.device() == Device{}) return;
  const int page = kv_.front().page_size;
  const int64_t room = std::min<int64_t>(limits_.max_context, int64_t{blocks} * page);
  const auto most = static_cast<int>(std::min<int64_t>(limits_.max_rows, room * limits_.max_seqs));
  const auto rehearse_rows = [&](int rows) {
    rehearse(blank_step(rows, static_cast<int>(std::min<int64_t>(rows, room)), page));
  };
  for (int rows = kFewestTuned; rows < most; rows *= 2) rehearse_rows(rows);
  rehearse_rows(most);
  // A step of decodes has a row of logits for each sequence: the head is tuned for those sizes,
  // too.
  const int seqs = std::min(limits_.max_seqs, limits_.max_rows);
  for (int size = 2 * kFewestTuned; size < 2 * seqs; size *= 2)
    rehearse(blank_step(std::min(size, seqs), 1, page));
  for (const int size : builder_.capture_sizes()) {
    const StepPlan plan = blank_step(size, 1, page);
    if (size <= kFewestTuned) rehearse(plan);
    for (int i = 0; i < 2; ++i) {  // the second one is recorded
      forward(builder_.build(plan));
      builder_.done_with(ops_.mark());
    }
  }
  ops_.wait(ops_.mark());
  for (const int rows : {1, limits_.max_seqs}) rehearse_draws(rows);
}

// Whatever a request may ask of the sampler, once: a kernel that is used for the first time takes
// memory of the device, and of that there may be none left later.
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
                                         .logprobs = 2},
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
}

void StepExecutor::rehearse(const StepPlan& plan) {
  constexpr int kRounds = 2;
  const BuiltStep& step = builder_.build(plan);
  ops_.begin_step(step.batch, step.arrivals);
  for (int i = 0; i < kRounds; ++i)
    ops_.rehearse([&] {
      arena_.reset();
      decoder_.forward(step.batch, kv_, arena_);
    });
  builder_.done_with(ops_.mark());
}

void StepExecutor::copy_blocks(const StepPlan& plan, Flight& flight) {
  if (plan.saves.empty() && plan.loads.empty()) return;
  SKIFF_CHECK(host_ != nullptr, "there is no host memory to copy blocks to");
  const uint64_t begin = ops_.stamp();
  for (const BlockCopy& copy : plan.saves) host_->save(ops_, kv_, copy.block, copy.slot);
  for (const BlockCopy& copy : plan.loads) host_->load(ops_, kv_, copy.slot, copy.block);
  flight.copies = {begin, ops_.stamp()};
}

void StepExecutor::launch(const StepPlan& plan) {
  SKIFF_CHECK(flights_.size() < 2, "two steps are on their way already");
  Flight flight;
  flight.result.step = plan.step;
  flight.start = Clock::now();
  copy_blocks(plan, flight);
  if (!plan.spans.empty()) {
    for (const OpenSlot& slot : plan.opened) sampler_.open(slot);
    SampleBatch columns;
    const BuiltStep& step = builder_.build(plan, [&](Upload& upload) {
      columns = sampler_.columns(upload, builder_.logit_rows().slots);
    });
    const Tensor logits = forward(step);
    const size_t spans = plan.spans.size();
    flight.result.tokens.resize(spans);
    flight.result.drafts.resize(spans);
    flight.result.logprobs.resize(spans);
    flight.result.prompt_logprobs.resize(spans);
    report_prompts(plan, logits, flight.result);
    sample(logits, step, columns, flight);
    check_drafts(plan, logits, flight);
  }
  flight.mark = ops_.mark();
  if (!plan.spans.empty()) builder_.done_with(flight.mark);
  flight.launched = Clock::now();
  flights_.push_back(std::move(flight));
}

// A captured step keeps the addresses of its arena: the logits are where they were.
Tensor StepExecutor::forward(const BuiltStep& step) {
  ops_.begin_step(step.batch, step.arrivals);
  const auto rows = static_cast<size_t>(step.batch.num_tokens);
  const bool capture = step.decode_only && rows < captured_.size();
  std::optional<ReplayKey> key;
  if (capture) key = {.rows = step.batch.num_tokens};
  Tensor logits;
  ops_.replay(key, [&] {
    arena_.reset();
    ops_.load_tokens(step.batch.tokens, last_);
    logits = decoder_.forward(step.batch, kv_, arena_).logits;
  });
  if (!capture) return logits;
  if (logits) captured_[rows] = logits;
  return captured_[rows];
}

StepResult StepExecutor::collect() {
  SKIFF_CHECK(!flights_.empty(), "no step is on its way");
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  ops_.wait(flight.mark);
  finish_draw(flight);
  if (flight.copies)
    flight.result.copy_seconds = ops_.seconds_between(flight.copies->first, flight.copies->second);
  // On a device of its own a step begins when the one before it has ended.
  const auto end = ops_.device() == Device{} ? flight.launched : Clock::now();
  flight.result.seconds = seconds(end - std::max(flight.start, ended_));
  ended_ = end;
  return std::move(flight.result);
}

void StepExecutor::finish_draw(Flight& flight) {
  if (std::exchange(flight.drawn, true) || flight.sampled.empty()) return;
  SampleOutput out = sampler_.finish(flight.draw);
  for (size_t i = 0; i < flight.sampled.size(); ++i) gain(flight.sampled[i], out, i, flight.result);
}

void StepExecutor::report_prompts(const StepPlan& plan, Tensor logits, StepResult& result) {
  for (const LogitRows::Range& range : builder_.logit_rows().prompts) {
    const Span& span = plan.spans[range.span];
    const auto begin = plan.tokens.begin() + range.row + 1;
    std::vector<Token> next(begin, begin + span.count - 1);
    if (!span.sample) next.push_back(span.next);
    result.prompt_logprobs[range.span] = sampler_.prompt_logprobs(
        logits.row_range(range.begin, range.count), next, span.prompt_logprobs);
  }
}

// Where rules look at what a slot has said, the host waits for its last token here: the device has
// this step's forward pass to do meanwhile.
void StepExecutor::sample(Tensor logits, const BuiltStep& step, const SampleBatch& columns,
                          Flight& flight) {
  const LogitRows& rows = builder_.logit_rows();
  flight.sampled = rows.sampled;
  if (rows.sampled.empty()) return;
  if (sampler_.needs_pending(rows.slots)) {
    for (Flight& earlier : flights_) {
      ops_.wait(earlier.mark);
      finish_draw(earlier);
    }
  }
  flight.draw = sampler_.start(logits, rows.slots, columns);
  ops_.store_tokens(last_, step.slots, flight.draw.tokens);
}

// A draft is kept as long as it is what the sampler draws by itself in its place, so the text is
// the one that decoding without drafts would give.
void StepExecutor::check_drafts(const StepPlan& plan, Tensor logits, Flight& flight) {
  const LogitRows& rows = builder_.logit_rows();
  if (rows.drafts.empty()) return;
  for (Flight& earlier : flights_) {
    ops_.wait(earlier.mark);
    finish_draw(earlier);
  }
  ops_.wait(ops_.mark());
  finish_draw(flight);
  for (const LogitRows::Range& range : rows.drafts) {
    const Span& span = plan.spans[range.span];
    const std::vector<Token>& got = flight.result.tokens[range.span];
    for (int d = 0; d < range.count; ++d) {
      if (plan.tokens[static_cast<size_t>(range.row + d)] != got.back()) break;
      const int slot[] = {span.slot};
      const PendingDraw draw = sampler_.start(logits.row_range(range.begin + d, 1), slot);
      draft_slots_.reset();
      const Tensor slots = draft_slots_.take(DType::kI32, {1});
      *slots.as<int32_t>() = span.slot;
      ops_.store_tokens(last_, slots, draw.tokens);
      ops_.wait(ops_.mark());
      SampleOutput out = sampler_.finish(draw);
      gain(range.span, out, 0, flight.result);
    }
  }
}

void StepExecutor::gain(size_t span, SampleOutput& out, size_t row, StepResult& result) {
  result.tokens[span].push_back(out.tokens[row]);
  if (out.logprobs[row]) result.logprobs[span].push_back(std::move(*out.logprobs[row]));
}

}  // namespace skiff
