// grammar/grammar_reader.h -- what the readers of grammars (GBNF, Lark) have in common: characters
// with escapes, rules by name, and choices of sequences of repeated items.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/characters.h"
#include "grammar/rule_set.h"

namespace skiff::grammar {

// Rules that may be used before they are defined.
class NamedRules {
 public:
  explicit NamedRules(RuleSet& rules) : rules_(rules) {}
  ExprId use(const std::string& name);
  // Throws Refusal if the rule has been defined.
  void define(const std::string& name, ExprId expr);
  bool defined(const std::string& name) const;
  // Throws Refusal naming a rule that is used and not defined.
  void check() const;

 private:
  struct Rule {
    RuleId id;
    bool defined = false;
  };
  Rule& rule(const std::string& name);
  RuleSet& rules_;
  std::map<std::string, Rule> known_;
};

// A place in the text of a grammar. Errors name the line.
class GrammarCursor {
 public:
  explicit GrammarCursor(std::string_view text) : text_(text) {}
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> form, Args&&... args) const {
    refuse("grammar, line {}: {}", line(), fmt::format(form, std::forward<Args>(args)...));
  }
  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view word);
  size_t at() const { return at_; }
  void go(size_t at) { at_ = at; }
  std::string_view text() const { return text_; }

  // Letters, digits, _ and - (GBNF); "" if none is here.
  std::string name();
  char32_t character();
  // After a backslash: \n \r \t \" \' \\ \[ \] \- \/ \xHH \uHHHH \UHHHHHHHH.
  char32_t escape();
  // Up to the closing `quote`, escapes undone.
  std::string quoted(char quote);
  // A whole number; refuses more than a million.
  uint32_t number();

 private:
  size_t line() const;
  std::string_view text_;
  size_t at_ = 0;
};

// Reads what stands on the right of a rule, in a dialect that a derived class knows. All of it
// throws Refusal with the line.
class GrammarReader {
 public:
  GrammarReader(std::string_view text, RuleSet& rules)
      : in_(text), rules_(rules), names_(rules), speller_(rules.exprs, Spelling::kUtf8) {}

 protected:
  ~GrammarReader() = default;
  struct Bounds {
    uint32_t min = 0, max = 0;
  };
  // `depth`: the groups around the place.
  virtual void skip(int depth) = 0;      // what means nothing
  virtual bool take_bar(int depth) = 0;  // moves to the next choice
  virtual bool at_end(int depth) = 0;    // whether a sequence ends here, with nothing left to skip
  // Reads the bounds of a repetition that is not written as * + ?.
  virtual std::optional<Bounds> bounds() = 0;
  virtual ExprId item(int depth) = 0;

  ExprId choice(int depth);
  // A choice in brackets, the first of which is taken.
  ExprId group(std::string_view close, int depth);
  ExprId use(const std::string& name);
  // Returns the expression of the rule `start`. It and every rule that is used must be defined.
  ExprId whole(const std::string& start);
  ExprSet& exprs() { return rules_.exprs; }

  GrammarCursor in_;
  RuleSet& rules_;
  NamedRules names_;
  Speller speller_;

 private:
  ExprId sequence(int depth);
  ExprId repeated(int depth);
};

}  // namespace skiff::grammar
