// grammar/regex.h -- regular expressions in the common part of ECMA-262's and Python's syntax.
//
// Literals, classes, \d \w \s and their complements, \p{L} and the like, groups, alternation,
// * + ? {m,n} (lazy forms mean the same language), and ^ and $ at the ends of alternatives. Where
// the two dialects disagree about a class, the smaller set counts. Look-around, back-references,
// \b and flags are refused.
#pragma once
#include <memory>
#include <string_view>

#include "grammar/characters.h"
#include "grammar/expr.h"

namespace skiff::grammar {

struct RegexNode;

class Regex {
 public:
  // Throws Refusal naming what is not supported and where.
  static Regex parse(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The texts that match as a whole.
  ExprId whole(Speller& speller) const;
  // The texts that hold a match.
  ExprId search(Speller& speller) const;

 private:
  explicit Regex(std::unique_ptr<RegexNode> root);
  std::unique_ptr<RegexNode> root_;
};

// Letters, digits and so on by their class letter (d, w, s, D, W, S); throws Refusal for another.
Characters class_escape(char letter);

}  // namespace skiff::grammar
