// grammar/regex_node.h -- the tree of a regular expression.
#pragma once
#include <memory>
#include <vector>

#include "grammar/regex_classes.h"

namespace skiff::grammar {

enum class RegexKind { kCharacters, kSequence, kChoice, kRepeat, kBegin, kEnd };

struct RegexNode {
  RegexKind kind = RegexKind::kSequence;
  Characters characters = {};
  std::vector<std::unique_ptr<RegexNode>> parts = {};
  uint32_t min = 0, max = 0;
  bool anchors = false;  // holds ^ or $
};

using RegexTree = std::unique_ptr<RegexNode>;

// Throws Refusal.
RegexTree parse_regex(std::string_view pattern, Reading reading);

}  // namespace skiff::grammar
