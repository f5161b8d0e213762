// libFuzzer target: any bytes as a plan from another process. What is let through indexes nothing
// outside of what a rank has.
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>

#include "base/check.h"
#include "engine/plan_bounds.h"
#include "message/wire.h"

namespace {

using namespace skiff;

const engine::PlanBounds kBounds{.limits = {.max_seqs = 4,
                                            .max_rows = 16,
                                            .max_context = 64,
                                            .max_logit_rows = 8,
                                            .vocab = 97,
                                            .chained_drafts = 2,
                                            .chained_reach = 1},
                                 .block_size = 8,
                                 .blocks = 10,
                                 .host_blocks = 3};

// What the batch builder and the sampler do with the numbers.
void use(const StepPlan& plan) {
  SKIFF_CHECK(std::ssize(plan.tokens) <= kBounds.limits.max_rows);
  std::set<int> slots;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    SKIFF_CHECK(span.slot < kBounds.limits.max_seqs && slots.insert(span.slot).second);
    const int end = span.begin + span.count;
    SKIFF_CHECK(end <= kBounds.limits.max_context);
    const int further = plan.chained ? kBounds.limits.chained_reach : 0;
    const auto used = (end + further + kBounds.block_size - 1) / kBounds.block_size;
    SKIFF_CHECK(plan.page_start[i] + used <= plan.page_start[i + 1]);
  }
  for (const BlockId page : plan.pages) SKIFF_CHECK(page >= 0 && page < kBounds.blocks);
  for (const Token token : plan.tokens) SKIFF_CHECK(token >= kOnDevice && token < 97);
  for (const OpenSlot& open : plan.opened)
    SKIFF_CHECK(open.slot < kBounds.limits.max_seqs && open.history.size() <= 64);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(data), size};
  const auto plan = read_plan(bytes);
  if (plan && engine::check_plan(*plan, kBounds)) use(*plan);
  return 0;
}
