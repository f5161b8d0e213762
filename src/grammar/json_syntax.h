// grammar/json_syntax.h -- the parts of JSON as expressions and rules, also as literals of Python.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/characters.h"
#include "grammar/constraint.h"
#include "grammar/rule_set.h"

namespace skiff::grammar {

class JsonSyntax {
 public:
  // Reads the whitespace options of the constraint. Throws Refusal for a bad whitespace pattern.
  // `spelling`: kJson or kTaggedJson, or kPython for literals of that language.
  JsonSyntax(RuleSet& rules, const Constraint& constraint, Spelling spelling = Spelling::kJson);

  ExprId space() const { return space_; }  // what may stand between two tokens
  ExprId value();                          // any JSON value
  ExprId object();                         // any JSON object
  ExprId array();
  ExprId string();
  ExprId integer();  // without fraction and exponent
  ExprId number();
  ExprId word(const char* json);  // null, true or false

  // One character of a string: any spelling, or the constructor's.
  ExprId any_character() const { return any_character_; }
  Speller& speller() { return speller_; }
  // `body` in quotes, as a rule of its own, so that all its users share its states.
  ExprId quoted(ExprId body);
  ExprId quoted_text(std::string_view text) { return quoted_once(speller_.text(text)); }
  ExprId quoted_once(ExprId body);

  // The text of one value; objects in their own order.
  ExprId literal(const OrderedJson& value);
  // `key`: `value`, with the space between them.
  ExprId member(ExprId key, ExprId value);
  ExprId comma() const { return comma_; }  // with the space around it
  // `items`, which may be empty, between `open` and `close`.
  ExprId enclosed(std::string_view open, ExprId items, std::string_view close);

  RuleSet& rules() { return rules_; }
  ExprSet& exprs() { return rules_.exprs; }

 private:
  ExprId number_literal(const OrderedJson& number);
  ExprId any_of(ExprId item);  // any number, parted by commas

  RuleSet& rules_;
  const bool python_;
  Speller speller_;
  ExprId space_ = kEmpty, comma_ = kEmpty, colon_ = kEmpty, any_character_ = kEmpty;
  std::optional<ExprId> value_, object_, array_, string_;
  std::unordered_map<ExprId, ExprId> quoted_;
};

}  // namespace skiff::grammar
