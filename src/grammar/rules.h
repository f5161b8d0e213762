// grammar/rules.h -- makes the rules of a front end fit for machine.h: calls of rules that may be
// empty become optional, rules without a finite word and what needs them disappear, and left
// recursion becomes repetition.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/expr.h"

namespace skiff::grammar {

// Returns for each rule the expression to start with; rules that the work added follow the given
// ones. A rule is left-recursive if it may call itself before it takes a byte. Throws Refusal where
// the first rule has no word, or only such in which more rules lie within each other than the
// machine follows (the message takes one of `names`), or left recursion passes through rules that
// may be empty.
std::vector<ExprId> prepared_rules(ExprSet& exprs, std::vector<ExprId> rules,
                                   const std::unordered_map<RuleId, std::string>& names);

}  // namespace skiff::grammar
