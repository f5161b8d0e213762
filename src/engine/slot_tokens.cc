#include "engine/slot_tokens.h"

#include "engine/zeroed.h"

namespace skiff::engine {

SlotTokens::SlotTokens(int max_slots, int drafts, Ops& ops)
    : max_slots_(max_slots), memory_(ops.device(), bytes(max_slots, drafts)) {
  const int64_t tokens = (1 + int64_t{drafts}) * max_slots_;
  const Tensor tables = zeroed(memory_, ops);
  all_ = tables.row_range(0, tokens);
  if (drafts == 0) return;
  refused_ = tables.row_range(tokens, max_slots_);
  moved_ = tables.row_range(tokens + max_slots_, max_slots_);
}

size_t SlotTokens::bytes(int max_slots, int drafts) {
  const size_t tables = drafts > 0 ? 3 + static_cast<size_t>(drafts) : 1;
  return tables * static_cast<size_t>(max_slots) * sizeof(Token);
}

}  // namespace skiff::engine
