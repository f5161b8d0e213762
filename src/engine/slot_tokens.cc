#include "engine/slot_tokens.h"

#include <vector>

namespace skiff::engine {

SlotTokens::SlotTokens(int max_slots, int drafts, Ops& ops)
    : max_slots_(max_slots), memory_(ops.device(), bytes(max_slots, drafts)) {
  const int64_t tokens = (1 + int64_t{drafts}) * max_slots_;
  std::vector<Token> zeros(memory_.size() / sizeof(Token), 0);
  const auto n = std::ssize(zeros);
  ops.copy(memory_.view(DType::kI32, {n}), host_tensor(zeros.data(), DType::kI32, {n}));
  ops.wait(ops.mark());
  all_ = memory_.view(DType::kI32, {tokens});
  if (drafts == 0) return;
  const auto behind = [&](int64_t rows) {
    return memory_.view(DType::kI32, {max_slots_}, static_cast<size_t>(rows) * sizeof(Token));
  };
  refused_ = behind(tokens);
  moved_ = behind(tokens + max_slots_);
}

size_t SlotTokens::bytes(int max_slots, int drafts) {
  const size_t tables = drafts > 0 ? 3 + static_cast<size_t>(drafts) : 1;
  return tables * static_cast<size_t>(max_slots) * sizeof(Token);
}

}  // namespace skiff::engine
