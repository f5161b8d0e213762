// grammar/expr.h -- languages of byte strings as hash-consed regular expressions with intersection,
// complement, counted repetition and calls of rules, and their derivatives.
//
// The derivative of a language by a byte holds the rest of each word that starts with the byte
// (Brzozowski, "Derivatives of Regular Expressions", JACM 1964). Equal expressions have equal ids,
// so an id is a state of a DFA that comes into being while it is walked. Calls are no part of a
// derivative: they are listed by calls_of and belong to the stack of machine.h.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/byte_set.h"
#include "grammar/fuel.h"

namespace skiff::grammar {

using ExprId = uint32_t;
using RuleId = uint32_t;

inline constexpr ExprId kNothing = 0;  // the empty language
inline constexpr ExprId kEmpty = 1;    // the empty word alone
inline constexpr uint32_t kEndless = ~uint32_t{0};

enum class ExprKind : uint8_t {
  kNothing,
  kEmpty,
  kBytes,    // one byte of `first`
  kLiteral,  // text pool [a, a + b)
  kConcat,   // a, then b; a is no kConcat
  kAlt,      // any of the children
  kBoth,     // all of the children
  kNot,      // no word of a
  kRepeat,   // a, from `min` to `max` times
  kCall,     // rule a
  kSeed,     // rule a without its left-recursive calls (left_recursion.h)
  kResidue,  // decimal digits that, after digits of remainder b, make a multiple of a
};

struct Expr {
  ExprKind kind = ExprKind::kNothing;
  bool nullable = false;   // holds the empty word; a call counts as never empty
  bool has_calls = false;  // a call may come first
  bool has_both = false;   // holds kBoth or kNot, so may be the empty language unseen
  bool any_call = false;   // a call anywhere
  uint32_t a = 0, b = 0;
  uint32_t min = 0, max = 0;
  ByteSet first;  // bytes that may come first: all that do, perhaps more
};

// A call that may come first, and what follows it.
struct CallOf {
  RuleId rule;
  ExprId rest;
};

// Not thread-safe. Ids stay valid until they are forgotten. `fuel` outlives it; once it is empty,
// results are meaningless.
class ExprSet {
 public:
  explicit ExprSet(Fuel& fuel);
  ExprSet(const ExprSet&) = delete;
  ExprSet& operator=(const ExprSet&) = delete;

  ExprId bytes(const ByteSet& set);
  ExprId byte_range(int low, int high) { return bytes(ByteSet::range(low, high)); }
  ExprId literal(std::string_view text);
  ExprId concat(ExprId head, ExprId tail);
  ExprId concat(std::initializer_list<ExprId> parts);
  ExprId alt(std::vector<ExprId> choices);
  // kNothing where the intersection is found empty.
  ExprId both(std::vector<ExprId> parts);
  ExprId negate(ExprId expr);
  ExprId repeat(ExprId body, uint32_t min, uint32_t max);
  ExprId optional(ExprId body) { return repeat(body, 0, 1); }
  ExprId call(RuleId rule);
  ExprId seed(RuleId rule);
  ExprId residue(uint32_t modulus, uint32_t remainder);
  // Any bytes at all.
  ExprId anything() { return anything_; }
  // `parts` with `between` between them.
  ExprId joined(const std::vector<ExprId>& parts, ExprId between);

  const Expr& operator[](ExprId id) const { return exprs_[id]; }
  std::span<const ExprId> children(const Expr& expr) const {
    return {children_.data() + expr.a, expr.b};
  }
  std::string_view text(const Expr& expr) const {
    return std::string_view(texts_).substr(expr.a, expr.b);
  }
  size_t size() const { return exprs_.size(); }
  // Forgets the expressions that were made since; the others must not have changed their rules.
  struct Mark {
    size_t exprs = 0, children = 0;
  };
  Mark mark() const { return {exprs_.size(), children_.size()}; }
  void forget(const Mark& since);
  size_t bytes_used() const;
  Fuel& fuel() { return *fuel_; }

  // What may follow `byte`, less the empty intersections.
  ExprId derivative(ExprId id, uint8_t byte);
  // The calls that may come first, one entry for each rule.
  std::vector<CallOf> calls_of(ExprId id);
  // False if no word is in the language, as far as kBoth and kNot are concerned.
  bool live(ExprId id);
  // Forgets which are live: what is burnt from here on does not depend on what was asked before.
  void forget_live() { live_ = {}; }
  // True if the word is in the language, which has no calls.
  bool matches(ExprId id, std::string_view word);

  // What a kSeed derives from; seeds of a rule are made after its expression is set.
  void set_rule(RuleId rule, ExprId expr);
  ExprId rule(RuleId rule) const { return rules_[rule]; }
  // Rules of one group call each other first; their seeds leave such calls out.
  void set_groups(std::vector<uint32_t> groups) { groups_ = std::move(groups); }

  // Bytes that no expression tells apart share a class. The classes change while expressions are
  // made from new bytes, and no more once derivatives alone are.
  int num_classes() const { return num_classes_; }
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  uint8_t byte_of_class(int c) const { return byte_of_class_[static_cast<size_t>(c)]; }

 private:
  ExprId intern(const Expr& expr, std::span<const ExprId> children);
  bool equal(const Expr& x, const Expr& expr, std::span<const ExprId> children) const;
  void fill_slots(size_t count);
  void refine(const ByteSet& set);
  void refine_text(std::string_view text);
  std::vector<ExprId> flattened(ExprKind kind, std::vector<ExprId> ids) const;
  void merge_repeats(std::vector<ExprId>& choices);
  bool factor_tails(std::vector<ExprId>& choices);
  ExprId literal_at(uint32_t at, uint32_t size);
  void collect(ExprId id, uint8_t byte, std::vector<ExprId>& out);
  void collect_calls(ExprId id, ExprId tail, std::vector<CallOf>& out);
  uint32_t group_of(RuleId rule) const { return rule < groups_.size() ? groups_[rule] : rule; }
  ExprId derive_both(const Expr& expr, uint8_t byte);

  Fuel* fuel_;
  std::vector<Expr> exprs_;
  std::vector<ExprId> children_;
  std::string texts_;
  std::unordered_map<std::string, uint32_t> text_places_;  // where a text lies in texts_
  std::vector<uint32_t> slots_;                            // open addressing over exprs_
  std::vector<uint64_t> hashes_ = {0, 0};
  ByteSet singled_;  // bytes that are a class of their own
  std::vector<ExprId> rules_;
  std::vector<uint32_t> groups_;
  std::unordered_map<ExprId, bool> live_;
  bool searching_ = false;  // inside live(): intersections are not examined
  std::array<uint8_t, 256> class_of_{};
  std::array<uint8_t, 256> byte_of_class_{};
  int num_classes_ = 1;
  ExprId anything_ = 0;
};

}  // namespace skiff::grammar
