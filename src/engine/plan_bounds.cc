#include "engine/plan_bounds.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <vector>

namespace skiff::engine {
namespace {

constexpr int64_t kAnything = std::numeric_limits<int32_t>::max();

int64_t token_end(const PlanBounds& bounds) {
  return bounds.limits.vocab > 0 ? bounds.limits.vocab : kAnything;
}

// Collects the first thing that is wrong.
class Checker {
 public:
  // Requires `value` in [low, end).
  void need(std::string_view what, int64_t value, int64_t low, int64_t end) {
    if (error_.empty() && (value < low || value >= end))
      error_ = fmt::format("{} is {}; it must be from {} to {}", what, value, low, end - 1);
  }
  Status status() const {
    if (error_.empty()) return ok();
    return Error{Code::kInvalid, fmt::format("a plan that cannot be carried out: {}", error_)};
  }

 private:
  std::string error_;
};

void check_slots_differ(const StepPlan& plan, const PlanBounds& bounds, Checker& checker) {
  std::vector<int> uses(static_cast<size_t>(bounds.limits.max_seqs), 0);
  for (const Span& span : plan.spans)
    checker.need("the number of spans of a slot", ++uses[static_cast<size_t>(span.slot)], 1, 2);
}

// Rows of logits: those that are drawn or checked, those for prompt log-probabilities, and one that
// is pooled.
int64_t logit_rows(const Span& span) {
  int64_t rows = span.sample ? 1 + span.draft : 0;
  if (span.prompt_logprobs != kNoLogprobs) rows += span.count - (span.sample ? 1 : 0);
  return rows + (span.pool_logits ? 1 : 0);
}

// Returns the end of the positions that a span needs pages for: behind a chained step tokens are
// drafted at further ones.
int64_t end_of_pages(const StepPlan& plan, const Span& span, const PlanBounds& bounds) {
  const int further = plan.chained ? bounds.limits.chained_reach : 0;
  return int64_t{span.begin} + span.count + further;
}

void check_chained(const StepPlan& plan, const PlanBounds& bounds, Checker& checker) {
  const int most = bounds.limits.chained_drafts;
  if (plan.chained) checker.need("the number of drafts behind a chained step", most, 1, kAnything);
  const Token* row = plan.tokens.data();
  for (const Span& span : plan.spans) {
    // They stand behind a token and at least one draft.
    if (span.after_drafts)
      checker.need("the beginning of rows behind drafts", span.begin, 2, kAnything);
    for (int draft = 0; draft < span.draft; ++draft)
      if (row[span.count - span.draft + draft] == kOnDevice)
        checker.need("the number of a draft that the host does not know", draft, 0, most);
    row += span.count;
  }
}

void check_span(const StepPlan& plan, size_t index, const PlanBounds& bounds, Checker& checker) {
  const Span& span = plan.spans[index];
  const int64_t end = int64_t{span.begin} + span.count, size = bounds.block_size;
  const int64_t most = (int64_t{bounds.limits.max_context} + size - 1) / size * size;
  checker.need("the slot of a span", span.slot, 0, bounds.limits.max_seqs);
  checker.need("the end of a span", end, 1, most + 1);
  checker.need("the next token of a span", span.next, -1, token_end(bounds));
  const int64_t pages = plan.page_start[index + 1] - plan.page_start[index];
  const int64_t last = end_of_pages(plan, span, bounds);
  checker.need("the number of pages of a span", pages, (last + size - 1) / size, kAnything);
}

}  // namespace

Status check_plan(const StepPlan& plan, const PlanBounds& bounds) {
  Checker checker;
  const sched::Limits& limits = bounds.limits;
  checker.need("the number of rows", std::ssize(plan.tokens), 0, int64_t{limits.max_rows} + 1);
  checker.need("the number of spans", std::ssize(plan.spans), 0, int64_t{limits.max_seqs} + 1);
  int64_t logits = 0;
  for (size_t i = 0; i < plan.spans.size() && checker.status(); ++i) {
    check_span(plan, i, bounds, checker);
    logits += logit_rows(plan.spans[i]);
  }
  if (checker.status()) check_slots_differ(plan, bounds, checker);
  if (checker.status()) check_chained(plan, bounds, checker);
  checker.need("the number of rows of logits", logits, 0, int64_t{limits.max_logit_rows} + 1);
  for (const Token token : plan.tokens)
    checker.need("a token", token, kOnDevice, token_end(bounds));
  for (const BlockId page : plan.pages) checker.need("a block", page, 0, bounds.blocks);
  for (const auto* copies : {&plan.saves, &plan.loads}) {
    for (const BlockCopy& copy : *copies) {
      checker.need("a block", copy.block, 0, bounds.blocks);
      checker.need("a block of host memory", copy.host, 0, bounds.host_blocks);
    }
  }
  for (const OpenSlot& open : plan.opened) {
    checker.need("an opened slot", open.slot, 0, limits.max_seqs);
    checker.need("the length of a history", std::ssize(open.history), 0,
                 int64_t{limits.max_context} + 1);
    for (const Token token : open.history)
      checker.need("a token of a history", token, 0, token_end(bounds));
  }
  return checker.status();
}

}  // namespace skiff::engine
