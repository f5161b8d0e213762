// model/name_pattern.h -- the patterns by which quantized checkpoints name layers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace skiff::model {

// How a pattern is matched against module names such as "model.layers.3.mlp.down_proj".
enum class PatternKind : uint8_t {
  kName,        // the name, or the name of what contains it: "model.layers.3" means all of a layer
  kRegex,       // a regular expression that matches the beginning, as Python's re.match
  kSubstring,   // anywhere in the name
  kComponents,  // whole components anywhere: "mlp.gate" is not in "mlp.gate_proj"
  kWildcard,    // the whole name, with * for any text and ? for a character
  kAll,         // every linear layer
};

// What all matches of a checkpoint's patterns with the names of its modules may cost together, in
// steps of about ten nanoseconds. That is enough for 46,000 modules and as many plain names, or
// three hundred regular expressions with several stars.
struct MatchBudget {
  int64_t steps = 4'000'000'000;
};

// Immutable and cheap to copy; safe from any thread.
class NamePattern {
 public:
  // `where` names file and key in errors. Throws a LoadError with it and the pattern if that is to
  // be a regular expression and is none.
  NamePattern(PatternKind kind, std::string text, const std::string& where);
  // A regular expression that takes more than a million steps on a name throws a LoadError.
  bool matches(std::string_view name) const;
  // Takes at least the cost of the match from the budget, and much more for a regular expression
  // that backtracks far. Throws a LoadError that names file and key once the budget is spent.
  bool matches(std::string_view name, MatchBudget& budget) const;
  PatternKind kind() const { return kind_; }
  const std::string& text() const { return text_; }

 private:
  struct Program;
  void charge(int64_t steps, std::string_view name, MatchBudget& budget) const;
  bool wildcard_matches(std::string_view name, MatchBudget& budget) const;
  bool regex_matches(std::string_view name, MatchBudget& budget) const;
  PatternKind kind_;
  std::string text_, where_;
  std::shared_ptr<const Program> program_;
};

}  // namespace skiff::model
