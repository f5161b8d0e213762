// grammar/free_text.h -- texts in which special tokens are named by their written form, and free
// text around them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "grammar/rule_set.h"

namespace skiff::grammar {

// The text, in which each spelling of a special token stands for that token alone (the longest one
// where several begin).
ExprId marked_text(std::string_view text, RuleSet& rules);

// Returns an expression for any text of ordinary tokens.
ExprId free_text(ExprSet& exprs);
// Returns an expression for any text of ordinary and special tokens.
ExprId any_tokens(ExprSet& exprs);

// Texts that end or exclude free text. None may be empty.
class Words {
 public:
  // Throws Refusal for an empty word.
  Words(const std::vector<std::string>& words, RuleSet& rules);
  // Returns an expression for texts of `text` that contain none of the words, neither as special
  // tokens nor spelled.
  ExprId without(ExprId text) const;
  // Returns an expression for texts of `text` that end with `last` (one of the words or several)
  // and contain no word before it.
  ExprId until(ExprId text, ExprId last) const;
  // Returns an expression for any of the words, as marked_text() writes them.
  ExprId any() const { return marked_; }

 private:
  ExprSet& exprs_;
  ExprId marked_ = kNothing;   // as marked_text() has them
  ExprId spelled_ = kNothing;  // these, and the same without special tokens
};

}  // namespace skiff::grammar
