#include "engine/step_executor.h"

#include <chrono>
#include <utility>

namespace skiff {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

StepExecutor::StepExecutor(const LoadedModel& model, Ops& ops, std::span<const KvLayer> kv,
                           DType act, const Limits& limits, HostBlocks* host)
    : kv_(kv),
      host_(host),
      mesh_(make_solo_mesh()),
      arena_(Buffer(ops.device(),
                    Decoder::arena_bytes(model.spec, act, limits.max_rows, limits.max_logit_rows))),
      decoder_(model.spec, model.weights, ops, mesh_, act),
      sampler_(model.spec.vocab, limits.max_seqs, ops),
      builder_(limits, kv.front().page_size),
      last_(static_cast<size_t>(limits.max_seqs), 0) {}

void StepExecutor::copy_blocks(const StepPlan& plan) {
  SKIFF_CHECK(host_ != nullptr || (plan.saves.empty() && plan.loads.empty()));
  for (const BlockCopy& copy : plan.saves) host_->save(kv_, copy.block, copy.slot);
  for (const BlockCopy& copy : plan.loads) host_->load(kv_, copy.slot, copy.block);
}

StepResult StepExecutor::run(const StepPlan& plan) {
  const auto start = Clock::now();
  copy_blocks(plan);
  StepResult result;
  result.step = plan.step;
  result.copy_seconds = result.seconds = seconds_since(start);
  if (plan.spans.empty()) return result;
  for (const OpenSlot& slot : plan.opened) sampler_.open(slot);
  const RaggedBatch& batch = builder_.build(plan, last_);
  arena_.reset();
  const Tensor logits = decoder_.forward(batch, kv_, arena_);

  const size_t spans = plan.spans.size();
  result.tokens.resize(spans);
  result.drafts.resize(spans);
  result.logprobs.resize(spans);
  result.prompt_logprobs.resize(spans);
  report_prompts(plan, logits, result);
  sample(plan, logits, result);
  check_drafts(plan, logits, result);
  result.seconds = seconds_since(start);
  return result;
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

void StepExecutor::sample(const StepPlan& plan, Tensor logits, StepResult& result) {
  const LogitRows& rows = builder_.logit_rows();
  if (rows.sampled.empty()) return;
  SampleOutput out = sampler_.sample(logits.row_range(0, std::ssize(rows.slots)), rows.slots);
  for (size_t i = 0; i < rows.sampled.size(); ++i)
    gain(rows.sampled[i], plan.spans[rows.sampled[i]].slot, out, i, result);
}

// A draft is kept as long as it is what the sampler draws by itself in its place, so the text is
// the one that decoding without drafts would give.
void StepExecutor::check_drafts(const StepPlan& plan, Tensor logits, StepResult& result) {
  for (const LogitRows::Range& range : builder_.logit_rows().drafts) {
    const Span& span = plan.spans[range.span];
    for (int d = 0; d < range.count; ++d) {
      const Token guess = plan.tokens[static_cast<size_t>(range.row + d)];
      if (guess != result.tokens[range.span].back()) break;
      const int slot[] = {span.slot};
      SampleOutput out = sampler_.sample(logits.row_range(range.begin + d, 1), slot);
      gain(range.span, span.slot, out, 0, result);
    }
  }
}

void StepExecutor::gain(size_t span, int slot, SampleOutput& out, size_t row, StepResult& result) {
  last_[static_cast<size_t>(slot)] = out.tokens[row];
  result.tokens[span].push_back(out.tokens[row]);
  if (out.logprobs[row]) result.logprobs[span].push_back(std::move(*out.logprobs[row]));
}

}  // namespace skiff
