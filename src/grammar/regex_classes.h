// grammar/regex_classes.h -- the classes of characters that regular expressions name.
#pragma once
#include <optional>
#include <string_view>

#include "grammar/characters.h"

namespace skiff::grammar {

// What a pattern means where dialects disagree (ECMA-262, with Unicode or without, and Python).
enum class Reading {
  kLeast,     // what matches in all of these dialects
  kGreatest,  // what matches in any of these dialects
};
Reading opposite(Reading reading);

// How closely the greatest sets of digits and of word characters are known.
enum class Detail {
  kExact,   // by the tables of Unicode; hundreds of ranges, and as many states in an automaton
  kCoarse,  // with all characters beyond ASCII, which is more than needed and costs nothing
};
// Returns the characters of \d, \w, \s, \D, \W or \S; throws Refusal for another letter.
Characters class_escape(char letter, Reading reading, Detail detail);
// Returns the characters that a dot matches.
Characters any_but_line_ends(Reading reading);
// Returns the characters of a general category, named by its short or its long name; nothing for
// one that is not supported.
std::optional<Characters> category(std::string_view name);

}  // namespace skiff::grammar
