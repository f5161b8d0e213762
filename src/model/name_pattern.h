// model/name_pattern.h -- the patterns by which quantized checkpoints name layers.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace skiff::model {

// How a pattern means module names such as "model.layers.3.mlp.down_proj".
enum class PatternKind : uint8_t {
  kName,        // the name, or the name of what contains it: "model.layers.3" means all of a layer
  kRegex,       // a regular expression that matches the beginning, as Python's re.match
  kSubstring,   // anywhere in the name
  kComponents,  // whole components anywhere: "mlp.gate" is not in "mlp.gate_proj"
  kWildcard,    // the whole name, with * for any text and ? for a character
  kAll,         // every linear layer
};

// What matches of regular expressions that backtrack much may cost together, so that a list of slow
// ones is bounded as one of them is.
struct MatchBudget {
  int64_t steps = 8'000'000;
};

// Immutable and cheap to copy; safe from any thread.
class NamePattern {
 public:
  // Throws a LoadError that names `where` and the pattern if that is no regular expression.
  NamePattern(PatternKind kind, std::string text, const std::string& where);
  // A regular expression that takes more than a million steps on a name throws a LoadError.
  bool matches(std::string_view name) const;
  // Steps beyond the few thousand that any match may take are taken from the budget, rounded up; a
  // LoadError names `where` if that is spent.
  bool matches(std::string_view name, MatchBudget& budget) const;
  PatternKind kind() const { return kind_; }
  const std::string& text() const { return text_; }

 private:
  struct Program;
  bool regex_matches(std::string_view name, MatchBudget& budget) const;
  PatternKind kind_;
  std::string text_;
  std::shared_ptr<const Program> program_;
};

}  // namespace skiff::model
