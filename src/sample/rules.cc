#include "sample/rules.h"

#include <algorithm>

namespace skiff::sample {

std::span<const Rule> rules() {
  static constexpr Rule kRules[] = {
      {.name = "bad_words", .ban = ban_bad_words},
      {.name = "min_tokens", .ban = hold_back_stop},
      {.name = "logit_bias", .bias = bias_logits},
      {.name = "repetition", .penalize = penalize_repetition},
      {.name = "presence_and_frequency", .penalize = penalize_presence},
  };
  return kRules;
}

// Biases for the same token are summed.
std::vector<Edit> biases_of(const SamplingParams& params, int vocab) {
  std::vector<Edit> all, out;
  for (const Rule& rule : rules())
    if (rule.bias) rule.bias(params, all);
  std::erase_if(all, [&](const Edit& edit) { return edit.token < 0 || edit.token >= vocab; });
  if (!std::ranges::is_sorted(all, {}, &Edit::token))
    std::ranges::stable_sort(all, {}, &Edit::token);
  out.reserve(all.size());
  for (const Edit& edit : all) {
    if (!out.empty() && out.back().token == edit.token)
      out.back().add += edit.add;
    else
      out.push_back(edit);
  }
  return out;
}

std::vector<Token> banned_of(const SlotState& slot, int vocab) {
  std::vector<Token> out;
  for (const Rule& rule : rules())
    if (rule.ban) rule.ban(slot, out);
  std::erase_if(out, [&](Token token) { return token < 0 || token >= vocab; });
  std::ranges::sort(out);
  const auto [end, last] = std::ranges::unique(out);
  out.erase(end, last);
  return out;
}

Penalty penalty_of(const SamplingParams& params) {
  Penalty out;
  for (const Rule& rule : rules())
    if (rule.penalize) rule.penalize(params, out);
  return out;
}

}  // namespace skiff::sample
