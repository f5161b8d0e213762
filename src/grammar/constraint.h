// grammar/constraint.h -- what a request asks of its answer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace skiff::grammar {

enum class ConstraintKind : uint8_t {
  kJsonObject,     // any JSON object; no text
  kJsonSchema,     // text: the schema, JSON Schema 2020-12
  kRegex,          // text: a regular expression that matches the whole answer
  kChoice,         // text: a JSON array of strings, one of which is the answer
  kGrammar,        // text: GBNF or EBNF where it holds "::=", else Lark
  kStructuralTag,  // text: the object of a structural tag, either form
};

struct Constraint {
  ConstraintKind kind = ConstraintKind::kJsonObject;
  std::string text;
  // Between the tokens of JSON: nothing, one space, or a newline and at most 20 blanks. A pattern
  // replaces that; `no_whitespace` forbids all.
  bool no_whitespace = false;
  std::string whitespace_pattern;
  bool strict = false;  // an unknown "format" is refused instead of ignored
  friend bool operator==(const Constraint&, const Constraint&) = default;
};

}  // namespace skiff::grammar
