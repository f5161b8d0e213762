#include "grammar/front_ends.h"

#include "base/json_owner.h"
#include "base/utf8.h"
#include "grammar/free_text.h"
#include "grammar/mended_text.h"
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
  lowering.check_depth(out);
  return out;
}

ExprId regex_text(std::string_view pattern, RuleSet& rules) {
  if (!is_valid_utf8(pattern)) refuse("the regular expression is not UTF-8");
  Speller speller(rules.exprs, Spelling::kUtf8);
  return Regex::parse(pattern).whole(speller);
}

ExprId choice_text(std::string_view choices, RuleSet& rules) {
  auto parsed = parse_json(choices, {.max_bytes = choices.size(), .max_depth = 2});
  if (!parsed) refuse_malformed("the choices are not valid JSON: {}", parsed.error().what);
  const JsonOwner<Json> list(std::move(*parsed));
  if (!(*list).is_array() || (*list).empty())
    refuse_malformed("the choices must be a list of strings");
  std::vector<ExprId> all;
  for (const Json& choice : *list) {
    if (!choice.is_string()) refuse_malformed("the choices must be a list of strings");
    if (choice.get_ref<const std::string&>().empty()) refuse_malformed("a choice is empty");
    if (is_mended(choice.get_ref<const std::string&>())) refuse_malformed("a choice {}", kMended);
    all.push_back(rules.exprs.literal(choice.get_ref<const std::string&>()));
  }
  return rules.exprs.alt(std::move(all));
}

ExprId grammar_text(std::string_view grammar, RuleSet& rules) {
  if (!is_valid_utf8(grammar)) refuse("the grammar is not UTF-8");
  return grammar.find("::=") != grammar.npos ? gbnf_text(grammar, rules)
                                             : lark_text(grammar, rules);
}

namespace {

ExprId form_text(const Constraint& constraint, RuleSet& rules) {
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
      return structural_tag_text(constraint.text, constraint, rules);
  }
  return kNothing;
}

ExprId calls_text(const Constraint& constraint, RuleSet& rules) {
  if (constraint.calls.empty()) return kNothing;
  try {
    return structural_tag_text(constraint.calls, constraint, rules);
  } catch (const Refusal& refusal) {
    throw Refusal(refusal.what(), "/calls" + refusal.where, refusal.code);
  }
}

// Line ends and blanks beside marks, which belong to nothing.
ExprId few_blanks(ExprSet& exprs) {
  constexpr uint32_t kMost = 4;
  ByteSet blanks;
  for (const char c : {'\n', ' '}) blanks.add(static_cast<uint8_t>(c));
  return exprs.repeat(exprs.bytes(blanks), 0, kMost);
}

// What may come behind the end of the reasoning: the answer, as it is or between its own marks.
ExprId wrapped(const ReasoningMarks& marks, ExprId form, ExprId answer, RuleSet& rules) {
  if (marks.content.empty()) return answer;
  ExprSet& exprs = rules.exprs;
  const ExprId blanks = few_blanks(exprs);
  return exprs.alt({answer, exprs.concat({marked_text(marks.content, rules), blanks, form, blanks,
                                          marked_text(marks.content_end, rules)})});
}

ExprId behind_reasoning(const ReasoningMarks& marks, ExprId form, ExprId answer, RuleSet& rules) {
  if (marks.end.empty()) return answer;
  ExprSet& exprs = rules.exprs;
  const Words end({marks.end}, rules);
  const ExprId blanks = few_blanks(exprs);
  const ExprId rest = exprs.concat(
      {end.until(any_tokens(exprs), end.any()), blanks, wrapped(marks, form, answer, rules)});
  if (marks.inside) return rest;
  return exprs.alt({answer, exprs.concat({blanks, marked_text(marks.begin, rules), rest})});
}

}  // namespace

ExprId constraint_text(const Constraint& constraint, RuleSet& rules) {
  const ExprId form = form_text(constraint, rules);
  const ExprId answer = rules.exprs.alt({form, calls_text(constraint, rules)});
  return behind_reasoning(constraint.reasoning, form, answer, rules);
}

}  // namespace skiff::grammar
