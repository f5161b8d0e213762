#include "grammar/front_ends.h"

#include "base/json_owner.h"
#include "base/utf8.h"
#include "grammar/regex.h"
#include "grammar/schema/lowering.h"

namespace skiff::grammar {

ExprId schema_text(std::string_view schema, JsonSyntax& syntax, bool strict) {
  constexpr size_t kMaxBytes = 256u << 10;
  const Document document(schema, kMaxBytes);
  SchemaLowering lowering(document, syntax, strict);
  const ExprId out = lowering.value({document.root()});
  if (syntax.exprs().fuel().empty()) refuse("the schema is too complex (its fuel is spent)");
  if (out == kNothing) refuse("the schema cannot be satisfied: no value fits it");
  return out;
}

ExprId regex_text(std::string_view pattern, RuleSet& rules) {
  if (!is_valid_utf8(pattern)) refuse("the regular expression is not UTF-8");
  Speller speller(rules.exprs, Spelling::kUtf8);
  return Regex::parse(pattern).whole(speller);
}

ExprId choice_text(std::string_view choices, RuleSet& rules) {
  auto parsed = parse_json(choices, {.max_bytes = choices.size(), .max_depth = 2});
  if (!parsed) refuse("the choices are not valid JSON: {}", parsed.error().what);
  const JsonOwner<Json> list(std::move(*parsed));
  if (!(*list).is_array() || (*list).empty()) refuse("the choices must be a list of strings");
  std::vector<ExprId> all;
  for (const Json& choice : *list) {
    if (!choice.is_string()) refuse("the choices must be a list of strings");
    if (choice.get_ref<const std::string&>().empty()) refuse("a choice is empty");
    all.push_back(rules.exprs.literal(choice.get_ref<const std::string&>()));
  }
  return rules.exprs.alt(std::move(all));
}

ExprId grammar_text(std::string_view grammar, RuleSet& rules) {
  if (!is_valid_utf8(grammar)) refuse("the grammar is not UTF-8");
  return grammar.find("::=") != grammar.npos ? gbnf_text(grammar, rules)
                                             : lark_text(grammar, rules);
}

ExprId constraint_text(const Constraint& constraint, RuleSet& rules) {
  switch (constraint.kind) {
    case ConstraintKind::kJsonObject:
      return JsonSyntax(rules, constraint).object();
    case ConstraintKind::kJsonSchema: {
      JsonSyntax syntax(rules, constraint);
      return schema_text(constraint.text, syntax, constraint.strict);
    }
    case ConstraintKind::kRegex:
      return regex_text(constraint.text, rules);
    case ConstraintKind::kChoice:
      return choice_text(constraint.text, rules);
    case ConstraintKind::kGrammar:
      return grammar_text(constraint.text, rules);
    case ConstraintKind::kStructuralTag:
      return structural_tag_text(constraint, rules);
  }
  return kNothing;
}

}  // namespace skiff::grammar
