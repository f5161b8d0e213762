// Grammars in a subset of Lark's language: `name: ...` with | ( ) [ ] * + ? ~n ~n..m, strings,
// "a".."z", /regular expressions/, comments and aliases. The text is the rule `start`. Terminals
// (UPPER) are rules like any other: every way of reading the text counts, not the longest match.
#include <algorithm>

#include "base/utf8.h"
#include "grammar/front_ends.h"
#include "grammar/grammar_reader.h"
#include "grammar/regex.h"

namespace skiff::grammar {
namespace {

class LarkReader final : GrammarReader {
 public:
  using GrammarReader::GrammarReader;

  ExprId read() {
    for (skip(1); in_.more(); skip(1)) {
      if (in_.peek() == '%') in_.fail("%-statements (ignore, import, declare) are not supported");
      while (in_.take("?") || in_.take("!")) {
      }
      const std::string name = in_.name();
      if (name.empty()) in_.fail("expected the name of a rule");
      if (in_.peek() == '{') in_.fail("templates are not supported");
      if (in_.take(".")) in_.number();
      skip(0);
      if (!in_.take(":")) in_.fail("expected : after \"{}\"", name);
      names_.define(name, choice(0));
    }
    return whole("start");
  }

 private:
  // Line ends mean something outside of groups.
  void skip(int depth) override {
    for (;;) {
      const bool comment = in_.peek() == '#' || (in_.peek() == '/' && in_.peek(1) == '/');
      if (comment) {
        while (in_.more() && in_.peek() != '\n') in_.character();
      } else if (in_.peek() == ' ' || in_.peek() == '\t' || in_.peek() == '\r' ||
                 (depth > 0 && in_.peek() == '\n')) {
        in_.go(in_.at() + 1);
      } else {
        return;
      }
    }
  }

  // The next line continues a rule if it begins with |; inside groups every line does.
  bool take_bar(int depth) override {
    skip(depth);
    const size_t here = in_.at();
    skip(1);
    if (in_.take("|")) return true;
    in_.go(here);
    return false;
  }

  // An alias stands at the end of a sequence and means nothing here.
  bool at_end(int depth) override {
    while (in_.take("->")) {
      skip(0);
      in_.name();
      skip(depth);
    }
    const char c = in_.peek();
    return !in_.more() || c == '\n' || c == '|' || c == ')' || c == ']';
  }

  // ~n or ~n..m
  std::optional<Bounds> bounds() override {
    if (!in_.take("~")) return std::nullopt;
    Bounds out;
    skip(0);
    out.min = in_.number();
    skip(0);
    out.max = in_.take("..") ? in_.number() : out.min;
    return out;
  }

  ExprId item(int depth) override {
    if (in_.take("(")) return group(")", depth);
    if (in_.take("[")) return exprs().optional(group("]", depth));
    if (in_.take("\"")) return string();
    if (in_.take("/")) return regex();
    const std::string name = in_.name();
    if (!name.empty() && in_.peek() == '{') in_.fail("templates are not supported");
    return use(name);
  }

  ExprId string() {
    const std::string text = in_.quoted('"');
    if (in_.take("..")) {
      if (!in_.take("\"")) in_.fail("expected a string after ..");
      const std::string last = in_.quoted('"');
      size_t a = 0, b = 0;
      const char32_t low = utf8_next(text, &a), high = utf8_next(last, &b);
      if (a != text.size() || b != last.size() || high < low)
        in_.fail("a range must be between two characters, in order");
      return speller_.one({{low, high}});
    }
    return in_.take("i") ? any_case(text) : exprs().literal(text);
  }

  ExprId any_case(const std::string& text) {
    std::vector<ExprId> parts;
    for (const char c : text) {
      if (static_cast<uint8_t>(c) >= 0x80) in_.fail("the flag i is supported for ASCII only");
      ByteSet both;
      both.add(static_cast<uint8_t>(c));
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (letter) both.add(static_cast<uint8_t>(c ^ 0x20));
      parts.push_back(exprs().bytes(both));
    }
    return exprs().joined(parts, kEmpty);
  }

  ExprId regex() {
    std::string pattern;
    bool bracket = false;
    while (bracket || in_.peek() != '/') {
      if (!in_.more() || in_.peek() == '\n') in_.fail("a regular expression without /");
      if (in_.take("\\")) {
        if (in_.peek() != '/') pattern += '\\';
        utf8_append(pattern, in_.character());
        continue;
      }
      const char c = in_.peek();
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      utf8_append(pattern, in_.character());
    }
    in_.take("/");
    if (std::string_view("imslux").find(in_.peek()) != std::string_view::npos && in_.more())
      in_.fail("flags of regular expressions are not supported");
    return Regex::parse(pattern).whole(speller_);
  }
};

}  // namespace

ExprId lark_text(std::string_view grammar, RuleSet& rules) {
  return LarkReader(grammar, rules).read();
}

}  // namespace skiff::grammar
