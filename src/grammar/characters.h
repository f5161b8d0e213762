// grammar/characters.h -- sets of Unicode characters, and their spellings as bytes.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expr.h"

namespace skiff::grammar {

// Sorted, disjoint ranges of code points; surrogates are never members.
class Characters {
 public:
  using Range = std::pair<char32_t, char32_t>;
  Characters() = default;
  Characters(std::initializer_list<Range> ranges) : ranges_(ranges) { settle(); }
  static Characters all() { return {{0, 0x10FFFF}}; }

  void add(char32_t low, char32_t high) { ranges_.emplace_back(low, high); }
  void add(const Characters& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  }
  // To be called after add().
  void settle();
  Characters inverse() const;
  Characters both(const Characters& other) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  friend auto operator<=>(const Characters&, const Characters&) = default;

 private:
  std::vector<Range> ranges_;
};

// How a text is written.
enum class Spelling {
  kUtf8,  // as it is
  // Inside a JSON string, one way for each character: as it is; quote, backslash and control
  // characters by their shortest escape; others than ASCII also by \u escapes.
  kJson,
  // Inside a string of Python, one way: as kJson, but never by \u escapes of pairs, which Python
  // reads as two characters.
  kPython,
  // Inside a string of JSON, as kJson, but < is spelled by its \u escape only, so that no string
  // holds a mark that begins with it.
  kTaggedJson,
};

// Spells characters, remembering what it has spelled.
class Speller {
 public:
  Speller(ExprSet& exprs, Spelling spelling) : exprs_(exprs), spelling_(spelling) {}
  // One character of the set.
  ExprId one(const Characters& set);
  // A text, which is valid UTF-8.
  ExprId text(std::string_view text);
  ExprId any() { return one(Characters::all()); }
  ExprSet& exprs() { return exprs_; }

 private:
  ExprId json(const Characters& set);
  ExprSet& exprs_;
  Spelling spelling_;
  std::map<Characters, ExprId> known_;
};

// One character in UTF-8.
ExprId utf8_of(ExprSet& exprs, const Characters& set);
// \uXXXX, or a pair of them; hexadecimal digits of either case.
ExprId unicode_escape_of(ExprSet& exprs, const Characters& set);

}  // namespace skiff::grammar
