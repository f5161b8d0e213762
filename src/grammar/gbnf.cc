// Grammars in the GBNF dialect of EBNF: `name ::= ...` with | ( ) * + ? {m,n}, strings, classes of
// characters, . for any character, # comments. The text is the rule `root`.
#include "grammar/front_ends.h"
#include "grammar/grammar_reader.h"

namespace skiff::grammar {
namespace {

constexpr int kMaxDepth = 128;

class GbnfReader {
 public:
  GbnfReader(std::string_view text, RuleSet& rules)
      : in_(text), rules_(rules), names_(rules), speller_(rules.exprs, Spelling::kUtf8) {}

  ExprId read() {
    for (skip(); in_.more(); skip()) {
      const std::string name = in_.name();
      if (name.empty()) in_.fail("expected the name of a rule");
      skip();
      if (!in_.take("::=")) in_.fail("expected ::= after \"{}\"", name);
      names_.define(name, choice(0));
    }
    if (!names_.defined("root")) refuse("grammar: there is no rule \"root\"");
    names_.check();
    return names_.use("root");
  }

 private:
  ExprSet& exprs() { return rules_.exprs; }

  void skip() {
    for (;;) {
      if (in_.peek() == '#') {
        while (in_.more() && in_.peek() != '\n') in_.character();
      } else if (in_.more() &&
                 std::string_view(" \t\r\n").find(in_.peek()) != std::string_view::npos) {
        in_.go(in_.at() + 1);
      } else {
        return;
      }
    }
  }

  // Whether the next rule begins here: its name and ::=.
  bool at_rule() {
    const size_t here = in_.at();
    const bool name = !in_.name().empty();
    skip();
    const bool rule = name && in_.take("::=");
    in_.go(here);
    return rule;
  }

  ExprId choice(int depth) {
    if (depth > kMaxDepth) in_.fail("groups are nested deeper than {}", kMaxDepth);
    std::vector<ExprId> choices = {sequence(depth)};
    while (in_.take("|")) choices.push_back(sequence(depth));
    return exprs().alt(std::move(choices));
  }

  ExprId sequence(int depth) {
    std::vector<ExprId> parts;
    for (skip(); in_.more() && in_.peek() != '|' && in_.peek() != ')' && !at_rule(); skip())
      parts.push_back(repeated(depth));
    if (exprs().fuel().empty()) in_.fail("the grammar is too complex (its fuel is spent)");
    return exprs().joined(parts, kEmpty);
  }

  ExprId repeated(int depth) {
    ExprId out = item(depth);
    for (;;) {
      if (in_.take("*")) {
        out = exprs().repeat(out, 0, kEndless);
      } else if (in_.take("+")) {
        out = exprs().repeat(out, 1, kEndless);
      } else if (in_.take("?")) {
        out = exprs().optional(out);
      } else if (in_.take("{")) {
        const uint32_t min = in_.peek() == ',' ? 0 : in_.number();
        uint32_t max = min;
        if (in_.take(",")) max = in_.peek() == '}' ? kEndless : in_.number();
        if (!in_.take("}")) in_.fail("a repetition without }}");
        if (max < min) in_.fail("the bounds of a repetition are out of order");
        out = exprs().repeat(out, min, max);
      } else {
        return out;
      }
    }
  }

  ExprId item(int depth) {
    if (in_.take("\"")) return exprs().literal(in_.quoted('"'));
    if (in_.take("'")) return exprs().literal(in_.quoted('\''));
    if (in_.take("[")) return bracket();
    if (in_.take(".")) return speller_.any();
    if (in_.take("(")) {
      const ExprId out = choice(depth + 1);
      if (!in_.take(")")) in_.fail("a group without )");
      return out;
    }
    const std::string name = in_.name();
    if (name.empty()) in_.fail("unexpected {}", std::string(1, in_.peek()));
    return names_.use(name);
  }

  ExprId bracket() {
    const bool inverse = in_.take("^");
    Characters set;
    while (!in_.take("]")) {
      const char32_t low = in_.take("\\") ? in_.escape() : in_.character();
      char32_t high = low;
      if (in_.peek() == '-' && in_.peek(1) != ']') {
        in_.take("-");
        high = in_.take("\\") ? in_.escape() : in_.character();
      }
      if (high < low) in_.fail("a class's range is out of order");
      set.add(low, high);
    }
    set.settle();
    return speller_.one(inverse ? set.inverse() : set);
  }

  GrammarCursor in_;
  RuleSet& rules_;
  NamedRules names_;
  Speller speller_;
};

}  // namespace

ExprId gbnf_text(std::string_view grammar, RuleSet& rules) {
  return GbnfReader(grammar, rules).read();
}

}  // namespace skiff::grammar
