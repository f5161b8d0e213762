// grammar/regex.h -- regular expressions in the common part of ECMA-262's and Python's syntax.
//
// Literals, classes, \d \w \s and their complements, \p{L} and the like, groups, alternation,
// * + ? {m,n} (lazy forms mean the same language), and ^ and $ at the ends of alternatives. Where
// the two dialects disagree, a pattern has two readings: the least is for texts that are to match,
// the greatest for texts that are not to. Look-around, back-references, \b and flags are refused.
#pragma once
#include <memory>
#include <string_view>

#include "grammar/regex_classes.h"

namespace skiff::grammar {

struct RegexNode;

class Regex {
 public:
  // Throws Refusal naming what is not supported and where.
  static Regex parse(std::string_view pattern, Reading reading = Reading::kLeast);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The texts that match as a whole.
  ExprId whole(Speller& speller) const;
  // The texts that hold a match.
  ExprId search(Speller& speller) const;

 private:
  Regex(std::unique_ptr<RegexNode> root, Reading reading);
  std::unique_ptr<RegexNode> root_;
  Reading reading_;
};

}  // namespace skiff::grammar
