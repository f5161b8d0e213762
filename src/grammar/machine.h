// grammar/machine.h -- the recogniser: a pushdown automaton over bytes whose configurations are
// determinised and hash-consed while texts and tokens are walked through it.
//
// A configuration is a set of (expression, stack), one for each way of reading the text so far. A
// stack is a set of (expression to go on with, stack below), shared between all ways that agree,
// as in generalised LR parsing (Tomita, "Efficient Parsing for Natural Language", 1986). Equal
// configurations have equal ids, so a step is one table lookup when it has been taken before.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/expr.h"

namespace skiff::grammar {

using StackId = uint32_t;
using ConfigId = uint32_t;

inline constexpr ConfigId kDead = 0;         // no text goes on from here
inline constexpr StackId kBottom = 0;        // below it, the text is complete
inline constexpr StackId kUnknown = 1;       // below it, somebody else knows what follows
inline constexpr uint32_t kMaxDepth = 1024;  // calls within calls

struct Element {
  ExprId state;
  StackId stack;
  friend bool operator==(const Element&, const Element&) = default;
};

struct Config {
  uint32_t begin = 0, count = 0;  // its elements; each may take a byte
  bool complete = false;          // the text may end here
  bool escaped = false;           // the frame above kUnknown may end here
};

// Not thread-safe. Once the fuel of `exprs` is empty, results are meaningless; what is kept of them
// is not, so that work goes on where there is fuel again.
class Machine {
 public:
  // `starts`, which outlive it, are the rules' expressions as prepared_rules gives them; rule 0 is
  // the whole text.
  Machine(ExprSet& exprs, std::span<const ExprId> starts);

  ConfigId start();
  std::span<const ExprId> starts() const { return starts_; }
  // The element alone, without what it calls: `state` above kUnknown.
  ConfigId alone(ExprId state);
  // The stack of another machine of the same expressions.
  StackId copied(const Machine& from, StackId stack);
  // What goes on where a frame above `stack` ends.
  ConfigId returned(StackId stack);

  ConfigId step(ConfigId config, uint8_t byte) {
    const size_t at = config * classes_ + class_of_[byte];
    const ConfigId known = next_[at];
    return known != kNotYet ? known : take_step(config, byte);
  }
  const Config& config(ConfigId id) const { return configs_[id]; }
  std::span<const Element> elements(ConfigId id) const {
    return {elements_.data() + configs_[id].begin, configs_[id].count};
  }
  // Bytes that may come next: all that do, perhaps more.
  ByteSet first(ConfigId id) const;

  size_t num_configs() const { return configs_.size(); }
  size_t bytes_used() const;
  ExprSet& exprs() const { return exprs_; }
  bool exhausted() const { return exprs_.fuel().empty(); }

 private:
  static constexpr ConfigId kNotYet = ~uint32_t{0};
  struct Frame {
    ExprId rest;
    StackId below;
  };
  struct Stack {
    uint32_t begin = 0, count = 0, depth = 0;
  };
  ConfigId take_step(ConfigId config, uint8_t byte);
  ConfigId close(const std::vector<Element>& kernel);
  ConfigId intern(const std::vector<Element>& elements, bool complete, bool escaped);
  StackId push(ExprId rest, StackId below) { return intern_stack({{rest, below}}); }
  StackId intern_stack(const std::vector<Frame>& frames);
  StackId united(StackId x, StackId y);
  ExprId derived(ExprId state, uint8_t byte);
  std::vector<CallOf> calls(ExprId state);

  ExprSet& exprs_;
  std::span<const ExprId> starts_;
  size_t classes_;
  std::array<uint8_t, 256> class_of_{};
  std::vector<Config> configs_;
  std::vector<Element> elements_;
  std::vector<ConfigId> next_;
  std::unordered_multimap<uint64_t, ConfigId> config_index_;
  std::vector<Stack> stacks_;
  std::vector<Frame> frames_;
  std::unordered_multimap<uint64_t, StackId> stack_index_;
  std::unordered_map<uint64_t, StackId> unions_;
  std::unordered_map<uint64_t, ExprId> derived_;  // (state, class)
  std::unordered_map<ExprId, std::vector<CallOf>> calls_;
  std::unordered_map<StackId, StackId> copied_;
  ConfigId start_ = kDead;
};

}  // namespace skiff::grammar
