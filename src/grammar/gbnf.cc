// Grammars in the GBNF dialect of EBNF: `name ::= ...` with | ( ) * + ? {m,n}, strings, classes of
// characters, . for any character, # comments. The text is the rule `root`.
#include "grammar/front_ends.h"
#include "grammar/grammar_reader.h"

namespace skiff::grammar {
namespace {

class GbnfReader final : GrammarReader {
 public:
  using GrammarReader::GrammarReader;

  ExprId read() {
    for (skip(0); in_.more(); skip(0)) {
      const std::string name = in_.name();
      if (name.empty()) in_.fail("expected the name of a rule");
      skip(0);
      if (!in_.take("::=")) in_.fail("expected ::= after \"{}\"", name);
      names_.define(name, choice(0));
    }
    return whole("root");
  }

 private:
  void skip(int) override {
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

  bool take_bar(int) override { return in_.take("|"); }

  bool at_end(int) override {
    return !in_.more() || in_.peek() == '|' || in_.peek() == ')' || at_rule();
  }

  // Returns whether the next rule begins here: its name and ::=.
  bool at_rule() {
    const size_t here = in_.at();
    const bool name = !in_.name().empty();
    skip(0);
    const bool rule = name && in_.take("::=");
    in_.go(here);
    return rule;
  }

  // Returns whether `word` comes next, behind what means nothing.
  bool takes(std::string_view word) {
    skip(0);
    return in_.take(word);
  }
  uint32_t bound() {
    skip(0);
    return in_.number();
  }

  // {m,n}
  std::optional<Bounds> bounds() override {
    if (!in_.take("{")) return std::nullopt;
    const auto rest = [&] {  // behind the comma
      if (takes("}")) return kEndless;
      const uint32_t most = bound();
      if (!takes("}")) in_.fail("a repetition without }}");
      return most;
    };
    if (takes(",")) return Bounds{0, rest()};
    const uint32_t min = bound();
    if (takes(",")) return Bounds{min, rest()};
    if (!takes("}")) in_.fail("a repetition without }}");
    return Bounds{min, min};
  }

  ExprId item(int depth) override {
    if (in_.take("\"")) return exprs().literal(in_.quoted('"'));
    if (in_.take("'")) return exprs().literal(in_.quoted('\''));
    if (in_.take("[")) return bracket();
    if (in_.take(".")) return speller_.any();
    if (in_.take("(")) return group(")", depth);
    return use(in_.name());
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
};

}  // namespace

ExprId gbnf_text(std::string_view grammar, RuleSet& rules) {
  return GbnfReader(grammar, rules).read();
}

}  // namespace skiff::grammar
