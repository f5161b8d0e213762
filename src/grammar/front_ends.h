// grammar/front_ends.h -- one function for each kind of constraint: its text to rules. They throw
// Refusal.
#pragma once
#include <string_view>

#include "grammar/constraint.h"
#include "grammar/json_syntax.h"
#include "grammar/rule_set.h"

namespace skiff::grammar {

// The expression of the whole text, of any kind of constraint, behind any reasoning.
ExprId constraint_text(const Constraint& constraint, RuleSet& rules);

ExprId schema_text(std::string_view schema, JsonSyntax& syntax, bool strict);
ExprId regex_text(std::string_view pattern, RuleSet& rules);
ExprId choice_text(std::string_view choices, RuleSet& rules);
// GBNF where the text holds "::=", else Lark. Rule names are the text's own.
ExprId grammar_text(std::string_view grammar, RuleSet& rules);
ExprId gbnf_text(std::string_view grammar, RuleSet& rules);
ExprId lark_text(std::string_view grammar, RuleSet& rules);
// `tag` is the object; `options` says how JSON in it is written.
ExprId structural_tag_text(std::string_view tag, const Constraint& options, RuleSet& rules);

}  // namespace skiff::grammar
