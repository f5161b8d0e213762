// grammar/constraint.h -- what a request asks of its answer.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skiff::grammar {

enum class ConstraintKind : uint8_t {
  kJsonObject,     // any JSON object; no text
  kJsonSchema,     // text: the schema, JSON Schema 2020-12
  kRegex,          // text: a regular expression that matches the whole answer
  kChoice,         // text: a JSON array of strings, one of which is the answer
  kGrammar,        // text: GBNF or EBNF where it holds "::=", else Lark
  kStructuralTag,  // text: the object of a structural tag, either form
};

// The reasoning that may stand before an answer. The constraint begins behind its end, whether the
// marks are special tokens or text.
struct ReasoningMarks {
  std::string begin, end;  // no `end`: there is no reasoning
  // What may stand around an answer behind the reasoning, and is no part of it.
  std::string content, content_end;
  bool inside = false;  // the text starts inside the reasoning; else it may begin with `begin`
  friend bool operator==(const ReasoningMarks&, const ReasoningMarks&) = default;
};

struct Constraint {
  ConstraintKind kind = ConstraintKind::kJsonObject;
  std::string text;
  // Between the tokens of JSON: nothing, one space, or a newline and at most 20 blanks. A pattern
  // replaces that; `no_whitespace` forbids all.
  bool no_whitespace = false;
  std::string whitespace_pattern;
  bool strict = false;  // an unknown "format" is refused instead of ignored
  // A structural tag that the answer may follow instead; "" if there is none. JSON pointers into it
  // begin with /calls.
  std::string calls;
  ReasoningMarks reasoning;
  int answers = 1;  // those that share the fuel of a step's masks (grammar.h: Matcher)
  friend bool operator==(const Constraint&, const Constraint&) = default;
};

// A constraint as text, which is equal for equal constraints: a key, and what a process is sent
// that has to follow the same answer.
std::string constraint_source(const Constraint& constraint);
// Reads untrusted bytes; kInvalid for what constraint_source does not write.
Result<Constraint> read_constraint_source(std::string_view source);

}  // namespace skiff::grammar
