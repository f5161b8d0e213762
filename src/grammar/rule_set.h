// grammar/rule_set.h -- where front ends write their rules.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/expr.h"
#include "grammar/refusal.h"
#include "grammar/vocabulary.h"

namespace skiff::grammar {

// Rule 0 is the whole text.
class RuleSet {
 public:
  static constexpr size_t kMaxRules = 5000;

  RuleSet(ExprSet& exprs, const Vocabulary& vocabulary) : exprs(exprs), vocabulary(vocabulary) {}
  // Returns a new rule, which nothing matches until it is defined.
  RuleId reserve() {
    if (rules.size() >= kMaxRules) refuse("more than {} rules", kMaxRules);
    if (exprs.fuel().empty()) refuse("the constraint is too complex (its fuel is spent)");
    rules.push_back(kNothing);
    return static_cast<RuleId>(rules.size() - 1);
  }
  ExprId define(RuleId rule, ExprId expr) {
    rules[rule] = expr;
    return exprs.call(rule);
  }

  ExprSet& exprs;
  const Vocabulary& vocabulary;  // for the special tokens that a text names
  std::vector<ExprId> rules = {kNothing};
  std::unordered_map<RuleId, std::string> names;  // what grammars call their rules
  // Expressions of one character that take every plain character (vocabulary.h).
  std::vector<ExprId> plain;
};

}  // namespace skiff::grammar
