// sample/token_counts.h -- the tokens that sequences with penalties have seen: counted where Ops
// computes, so that a draw depends on the draw before without the host's knowing it.
#pragma once
#include <vector>

#include "sample/rules.h"
#include "sample/staging.h"

namespace skiff::sample {

// A slot has room for all distinct tokens that a sequence can have; memory is allocated once. A
// token costs the host no more late in a sequence than early. Driven by the thread that drives
// `ops`.
class TokenCounts {
 public:
  // `max_tokens` bounds the tokens of a sequence that are counted.
  TokenCounts(Ops& ops, Staging& staging, int vocab, int max_slots, int max_tokens);
  // The bytes that are allocated where Ops computes, and on the host.
  static size_t bytes(int vocab, int max_slots, int max_tokens);
  static size_t host_bytes(int vocab) { return static_cast<size_t>(vocab) * sizeof(int32_t); }

  // Replaces what the slot held by the slot's history. The tokens of its prompt count only if
  // `with_prompt`, and those outside the vocabulary never do.
  void open(const OpenSlot& slot, bool with_prompt);
  // Penalizes these rows for the tokens that their slots have seen.
  void penalize(Tensor logits, const Penalties& rows);
  // Counts tokens[row] for the slot of each of these rows. `tokens` lies where Ops computes, and
  // the host need not know its values.
  void count(Tensor tokens, const Penalties& rows);
  void count(int slot, Token token);

 private:
  Ops& ops_;
  Staging& staging_;
  int most_;  // entries of a list
  Buffer memory_;
  SeenTokens seen_;
  std::vector<int32_t> place_;  // [vocab]; -1, but for open(): each token's entry
};

}  // namespace skiff::sample
