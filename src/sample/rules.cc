#include "sample/rules.h"

namespace skiff {

LogitEdits EditList::view() {
  const auto rows = static_cast<int64_t>(row_start_.size());
  const auto n = static_cast<int64_t>(token_.size());
  return {
      .row_start = host_tensor(row_start_.data(), DType::kI32, {rows}),
      .token = host_tensor(token_.data(), DType::kI32, {n}),
      .divide = host_tensor(divide_.data(), DType::kF32, {n}),
      .add = host_tensor(add_.data(), DType::kF32, {n}),
  };
}

void EditList::push(Token token, float divide, float add) {
  if (token < 0 || token >= vocab_) return;
  token_.push_back(token);
  divide_.push_back(divide);
  add_.push_back(add);
}

std::span<const Rule> rules() {
  static constexpr Rule kRules[] = {
      {"bad_words", ban_bad_words},
      {"min_tokens", hold_back_stop},
      {"logit_bias", bias_logits},
      {"repetition", discourage_repetition},
      {"presence_and_frequency", penalize_presence},
  };
  return kRules;
}

}  // namespace skiff
