#include "engine/step_executor.h"

#include <algorithm>
#include <utility>

namespace skiff {
namespace {

double seconds_from(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tensor zeroed_slots(const Buffer& memory, int max_seqs, Ops& ops) {
  std::vector<Token> zeros(static_cast<size_t>(max_seqs), 0);
  const Tensor out = memory.view(DType::kI32, {max_seqs});
  ops.copy(out, host_tensor(zeros.data(), DType::kI32, {max_seqs}));
  ops.wait(ops.mark());
  return out;
}

}  // namespace

StepExecutor::StepExecutor(const LoadedModel& model, Ops& ops, std::span<const KvLayer> kv,
                           DType act, const Limits& limits, HostBlocks* host,
                           std::vector<int> capture_sizes)
    : kv_(kv),
      host_(host),
      ops_(ops),
      mesh_(make_solo_mesh()),
      arena_(Buffer(ops.device(), Decoder::arena_bytes(model.spec, act, limits.max_rows,
                                                       limits.max_logit_rows, ops.expert_rows()))),
      decoder_(model.spec, model.weights, ops, mesh_, act),
      sampler_(model.spec.vocab, limits.max_seqs, ops),
      captured_(capture_sizes.empty() ? 0 : static_cast<size_t>(capture_sizes.back()) + 1),
      builder_(limits, kv.front().page_size, std::move(capture_sizes), ops),
      last_memory_(ops.device(), static_cast<size_t>(limits.max_seqs) * sizeof(Token)),
      last_(zeroed_slots(last_memory_, limits.max_seqs, ops)) {}

void StepExecutor::copy_blocks(const StepPlan& plan) {
  SKIFF_CHECK(host_ != nullptr || (plan.saves.empty() && plan.loads.empty()));
  for (const BlockCopy& copy : plan.saves) host_->save(ops_, kv_, copy.block, copy.slot);
  for (const BlockCopy& copy : plan.loads) host_->load(ops_, kv_, copy.slot, copy.block);
}

void StepExecutor::launch(const StepPlan& plan) {
  SKIFF_CHECK(flights_.size() < 2, "two steps are on their way already");
  Flight flight;
  flight.result.step = plan.step;
  flight.start = Clock::now();
  copy_blocks(plan);
  // Elsewhere the copies have only been asked for.
  if (ops_.device() == Device{}) flight.result.copy_seconds = seconds_from(flight.start);
  if (!plan.spans.empty()) {
    for (const OpenSlot& slot : plan.opened) sampler_.open(slot);
    const BuiltStep& step = builder_.build(plan);
    ops_.load_tokens(step.batch.tokens, last_);
    const Tensor logits = forward(step);
    const size_t spans = plan.spans.size();
    flight.result.tokens.resize(spans);
    flight.result.drafts.resize(spans);
    flight.result.logprobs.resize(spans);
    flight.result.prompt_logprobs.resize(spans);
    report_prompts(plan, logits, flight.result);
    sample(logits, step, flight);
    check_drafts(plan, logits, flight);
  }
  flight.mark = ops_.mark();
  flights_.push_back(std::move(flight));
}

// A captured step keeps the addresses of its arena: the logits are where they were.
Tensor StepExecutor::forward(const BuiltStep& step) {
  ops_.begin_step(step.batch);
  const auto rows = static_cast<size_t>(step.batch.num_tokens);
  const bool capture = step.decode_only && rows < captured_.size();
  Tensor logits;
  ops_.replay(capture ? rows : 0, [&] {
    arena_.reset();
    logits = decoder_.forward(step.batch, kv_, arena_);
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
  flight.result.seconds = seconds_from(std::max(flight.start, collected_));
  collected_ = Clock::now();
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
void StepExecutor::sample(Tensor logits, const BuiltStep& step, Flight& flight) {
  const LogitRows& rows = builder_.logit_rows();
  flight.sampled = rows.sampled;
  if (rows.sampled.empty()) return;
  if (sampler_.needs_pending(rows.slots)) {
    for (Flight& earlier : flights_) {
      ops_.wait(earlier.mark);
      finish_draw(earlier);
    }
  }
  flight.draw = sampler_.start(logits, rows.slots);
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
