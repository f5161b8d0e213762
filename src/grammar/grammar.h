// grammar/grammar.h -- constraints on the text of an answer: compiled once, then followed token by
// token, with masks of the tokens that may come next.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/constraint.h"
#include "grammar/vocabulary.h"

namespace skiff::grammar {

// Bounds on the work and memory of one constraint, in counted units (fuel.h), not in time.
struct Limits {
  size_t max_text = 256u << 10;      // bytes of the constraint
  int64_t compile_fuel = 2'000'000;  // for making the rules and a first mask
  int64_t step_fuel = 1'000'000;     // for one mask, or the masks of answers that share it
  // The most parts that the fuel of a step is divided into, so that for any number of answers each
  // has enough for the mask of an ordinary schema, some 10,000 units.
  int most_shares = 16;
  // Bytes of states and masks; beyond, they are made anew. Texts that need more get up to eight
  // times as much.
  size_t max_memory = size_t{64} << 20;
};

// A compiled constraint. Immutable seen from outside, and safe from any thread: what it learns
// while it is used stays behind a lock.
class Grammar {
 public:
  ~Grammar();
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Constraint& constraint() const;  // what it was compiled from
  size_t bytes_used() const;

 private:
  friend class Matcher;
  friend Result<std::shared_ptr<const Grammar>> compile(const Constraint&,
                                                        std::shared_ptr<const Vocabulary>,
                                                        const Limits&);
  struct State;
  Grammar(Constraint constraint, std::shared_ptr<const Vocabulary> vocabulary,
          const Limits& limits);
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<State> state_;
};

// Error::what says what cannot be honoured, Error::field the JSON pointer of the place in a schema
// or a structural tag, "" for the whole. Never weakens a constraint. Bounded by `limits`, so it may
// run on any thread but the step loop's.
Result<std::shared_ptr<const Grammar>> compile(const Constraint& constraint,
                                               std::shared_ptr<const Vocabulary> vocabulary,
                                               const Limits& limits = {});

// Follows one text through a grammar. A value; copies go on alone.
class Matcher {
 public:
  // `answers` share the fuel of a step's masks: each has the same part of it, whatever the others
  // need.
  explicit Matcher(std::shared_ptr<const Grammar> grammar, int answers = 1);

  // Returns false, and changes nothing, if the token may not come next. Tokens that end a text may
  // come once is_complete(); nothing comes after them.
  bool accept(int32_t token);
  // The number of leading tokens of `tokens` that may come next, one after the other.
  size_t accepts(std::span<const int32_t> tokens) const;
  // Takes back the last `count` tokens.
  void rollback(size_t count);
  size_t num_tokens() const { return tokens_.size(); }

  // Sets bit t of word t / 32 for each token t that may come next; `mask` has
  // vocabulary().mask_words() words. Returns false where no token may (the mask needs more fuel
  // than there is, or the nesting is too deep), and after the end.
  bool fill(std::span<uint32_t> mask) const;

  bool is_complete() const;                  // the text may end here
  bool is_terminated() const;                // nothing can follow, or the end was accepted
  bool has_ended() const { return ended_; }  // a token that ends a text was accepted
  // The bytes that must come next, up to `max_bytes`; "" where there is a choice.
  std::string forced_text(size_t max_bytes = 256) const;
  const Grammar& grammar() const { return *grammar_; }

 private:
  void renew() const;
  std::shared_ptr<const Grammar> grammar_;
  int answers_;
  std::vector<int32_t> tokens_;
  bool ended_ = false;
  // The configuration after each token, of the states of `generation_`.
  mutable std::vector<uint32_t> configs_;
  mutable uint64_t generation_ = 0;
};

}  // namespace skiff::grammar
