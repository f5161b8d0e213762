#include "grammar/free_text.h"

#include <algorithm>

namespace skiff::grammar {

ExprId marked_text(std::string_view text, RuleSet& rules) {
  constexpr int64_t kLookup = 8;  // the work of looking a special token up
  std::string out;
  while (!text.empty()) {
    rules.exprs.fuel().burn(kLookup);
    const std::string_view special = rules.vocabulary.special_at(text);
    out += special.empty() ? std::string(text.substr(0, 1)) : mark_of(special);
    text.remove_prefix(std::max<size_t>(special.size(), 1));
    if (rules.exprs.fuel().empty()) return kNothing;
  }
  return rules.exprs.literal(out);
}

ExprId free_text(ExprSet& exprs) {
  return exprs.repeat(exprs.byte_range(0, kMarkByte - 1), 0, kEndless);
}

ExprId any_tokens(ExprSet& exprs) { return exprs.anything(); }

Words::Words(const std::vector<std::string>& words, RuleSet& rules) : exprs_(rules.exprs) {
  std::vector<ExprId> marked, spelled;
  for (const std::string& word : words) {
    if (word.empty()) refuse_malformed("a trigger, an end or an excluded text is empty");
    marked.push_back(marked_text(word, rules));
    spelled.push_back(rules.exprs.literal(word));
  }
  marked_ = exprs_.alt(marked);
  spelled.push_back(marked_);
  spelled_ = exprs_.alt(std::move(spelled));
}

ExprId Words::without(ExprId text) const {
  if (spelled_ == kNothing) return text;
  const ExprId any = exprs_.anything();
  return exprs_.both({text, exprs_.negate(exprs_.concat({any, spelled_, any}))});
}

ExprId Words::until(ExprId text, ExprId last) const {
  const ExprId any = exprs_.anything();
  const ExprId more = exprs_.repeat(exprs_.bytes(ByteSet::all()), 1, kEndless);
  return exprs_.both(
      {exprs_.concat(text, last), exprs_.negate(exprs_.concat({any, spelled_, more}))});
}

}  // namespace skiff::grammar
