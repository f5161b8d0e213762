// grammar/regex_classes.h -- the classes of characters that regular expressions name.
#pragma once
#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace skiff::grammar {

// What a pattern means where dialects disagree (ECMA-262, with Unicode or without, and Python).
enum class Reading {
  kLeast,     // what matches by all of them
  kGreatest,  // what matches by any of them
};
Reading opposite(Reading reading);

// How closely the greatest sets of digits and of word characters are known.
enum class Detail {
  kExact,   // by the tables of Unicode; hundreds of ranges, and as many states in an automaton
  kCoarse,  // with all characters beyond ASCII, which is more than needed and costs nothing
};
// The characters of \d, \w, \s, \D, \W or \S; throws Refusal for another letter.
Characters class_escape(char letter, Reading reading, Detail detail);
// The characters that a dot stands for.
Characters any_but_line_ends(Reading reading);
// A general category by either of its names; nothing for those that are not supported.
std::optional<Characters> category(std::string_view name);

}  // namespace skiff::grammar
