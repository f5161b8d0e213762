#include "grammar/json_syntax.h"

#include <algorithm>
#include <cmath>

#include "grammar/regex.h"

namespace skiff::grammar {
namespace {

// Accepts nothing, one space, or a newline and at most 20 blanks: any style of indentation, but no
// endless blanks.
ExprId usual_space(ExprSet& exprs) {
  constexpr uint32_t kMaxBlanks = 20;
  const ExprId blank = exprs.alt({exprs.literal(" "), exprs.literal("\t")});
  return exprs.alt({kEmpty, exprs.literal(" "),
                    exprs.concat(exprs.literal("\n"), exprs.repeat(blank, 0, kMaxBlanks))});
}

ExprId chosen_space(ExprSet& exprs, const Constraint& constraint) {
  if (constraint.no_whitespace) return kEmpty;
  if (constraint.whitespace_pattern.empty()) return usual_space(exprs);
  Speller speller(exprs, Spelling::kUtf8);
  const ExprId space = Regex::parse(constraint.whitespace_pattern).whole(speller);
  const ExprId json = exprs.repeat(exprs.alt({exprs.literal(" "), exprs.literal("\t"),
                                              exprs.literal("\n"), exprs.literal("\r")}),
                                   0, kEndless);
  if (exprs.both({space, exprs.negate(json)}) != kNothing)
    refuse("the whitespace pattern matches more than blanks, tabs and line breaks");
  return space;
}

// Any spelling of a character; surrogates only in pairs, which Python does not have.
ExprId any_spelling(ExprSet& exprs, Spelling spelling) {
  const bool python = spelling == Spelling::kPython;
  Characters escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (spelling == Spelling::kTaggedJson) escaped.add('<', '<');
  escaped.settle();
  const Characters plain = escaped.inverse();
  ByteSet named;
  for (const char c : std::string_view(python ? "\"\\bfnrt" : "\"\\/bfnrt"))
    named.add(static_cast<uint8_t>(c));
  return exprs.alt({utf8_of(exprs, plain), exprs.concat(exprs.literal("\\"), exprs.bytes(named)),
                    python ? kNothing : unicode_escape_of(exprs, Characters::all())});
}

}  // namespace

JsonSyntax::JsonSyntax(RuleSet& rules, const Constraint& constraint, Spelling spelling)
    : rules_(rules), python_(spelling == Spelling::kPython), speller_(rules.exprs, spelling) {
  space_ = chosen_space(exprs(), constraint);
  comma_ = exprs().concat({space_, exprs().literal(","), space_});
  colon_ = exprs().concat({space_, exprs().literal(":"), space_});
  any_character_ = any_spelling(exprs(), spelling);
  if (spelling == Spelling::kTaggedJson) return;  // < is a plain character that it does not take
  for (const ExprId character : {any_character_, speller_.any()})
    if (std::find(rules_.plain.begin(), rules_.plain.end(), character) == rules_.plain.end())
      rules_.plain.push_back(character);
}

ExprId JsonSyntax::word(const char* json) {
  if (!python_) return exprs().literal(json);
  return exprs().literal(*json == 'n' ? "None" : *json == 't' ? "True" : "False");
}

ExprId JsonSyntax::quoted_once(ExprId body) {
  const ExprId quote = exprs().literal("\"");
  return exprs().concat({quote, body, quote});
}

ExprId JsonSyntax::quoted(ExprId body) {
  if (body == kNothing) return kNothing;
  const auto known = quoted_.find(body);
  if (known != quoted_.end()) return known->second;
  return quoted_[body] = rules_.define(rules_.reserve(), quoted_once(body));
}

ExprId JsonSyntax::string() { return quoted(exprs().repeat(any_character_, 0, kEndless)); }

ExprId JsonSyntax::integer() {
  const ExprId digits = exprs().repeat(exprs().byte_range('0', '9'), 0, kEndless);
  const ExprId whole =
      exprs().alt({exprs().literal("0"), exprs().concat(exprs().byte_range('1', '9'), digits)});
  return exprs().concat(exprs().optional(exprs().literal("-")), whole);
}

ExprId JsonSyntax::number() {
  const ExprId digits = exprs().repeat(exprs().byte_range('0', '9'), 1, kEndless);
  const ExprId sign = exprs().optional(exprs().alt({exprs().literal("+"), exprs().literal("-")}));
  const ExprId e = exprs().alt({exprs().literal("e"), exprs().literal("E")});
  return exprs().concat({integer(), exprs().optional(exprs().concat(exprs().literal("."), digits)),
                         exprs().optional(exprs().concat({e, sign, digits}))});
}

ExprId JsonSyntax::enclosed(std::string_view open, ExprId items, std::string_view close) {
  return exprs().concat(
      {exprs().literal(open), space_,
       exprs().alt({exprs()[items].nullable ? kEmpty : kNothing, exprs().concat(items, space_)}),
       exprs().literal(close)});
}

ExprId JsonSyntax::member(ExprId key, ExprId value) { return exprs().concat({key, colon_, value}); }

ExprId JsonSyntax::any_of(ExprId item) {
  const ExprId more = exprs().repeat(exprs().concat(comma_, item), 0, kEndless);
  return exprs().optional(exprs().concat(item, more));
}

ExprId JsonSyntax::value() {
  if (value_) return *value_;
  const RuleId rule = rules_.reserve();
  value_ = exprs().call(rule);
  return rules_.define(rule, exprs().alt({object(), array(), string(), number(), word("true"),
                                          word("false"), word("null")}));
}

ExprId JsonSyntax::object() {
  if (object_) return *object_;
  const RuleId rule = rules_.reserve();
  object_ = exprs().call(rule);
  return rules_.define(rule, enclosed("{", any_of(member(string(), value())), "}"));
}

ExprId JsonSyntax::array() {
  if (array_) return *array_;
  const RuleId rule = rules_.reserve();
  array_ = exprs().call(rule);
  return rules_.define(rule, enclosed("[", any_of(value()), "]"));
}

// A double may have been written in many ways; whole ones are also spelled as integers, where their
// shortest spelling is exact.
ExprId JsonSyntax::number_literal(const OrderedJson& number) {
  constexpr double kMostExact = 9007199254740992;  // 2^53
  const ExprId shortest = exprs().literal(number.dump());
  if (!number.is_number_float()) return shortest;
  const double value = number.get<double>();
  if (std::floor(value) != value || std::abs(value) > kMostExact) return shortest;
  return exprs().alt({shortest, exprs().literal(fmt::format("{:.0f}", value))});
}

ExprId JsonSyntax::literal(const OrderedJson& value) {
  if (value.is_string()) return quoted_text(value.get_ref<const std::string&>());
  if (value.is_boolean()) return word(value.get<bool>() ? "true" : "false");
  if (value.is_null()) return word("null");
  if (value.is_number()) return number_literal(value);
  std::vector<ExprId> items;
  for (const auto& item : value.items())
    items.push_back(value.is_array() ? literal(item.value())
                                     : member(quoted_text(item.key()), literal(item.value())));
  const ExprId joined = exprs().joined(items, comma_);
  return value.is_array() ? enclosed("[", joined, "]") : enclosed("{", joined, "}");
}

}  // namespace skiff::grammar
