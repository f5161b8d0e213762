// message/draft_check.h -- how drafts are checked, as plain values.
#pragma once
#include <cstdint>
#include <string>

#include "message/request.h"

namespace skiff {

// A draft is kept or refused by one of these rules. p is the distribution that the row's token is
// drawn from, q the one that the draft was drawn from. docs/speculation.md has them for users.
enum class DraftRule : uint8_t {
  kTargetMatch,  // kept if it is the token that the row draws: the text is that without drafts
  kGreedy,       // the same, and every token is the most likely one, whatever the request asks for
  kRejection,    // kept with the probability min(1, p / q), and otherwise drawn from max(p - q, 0)
                 // (Leviathan et al. 2023): the distribution is that without drafts, a text is not
  kTopP,         // FastDeploy's: kept if it is among the tokens that top_p keeps
  kRelaxed,      // TensorRT-LLM's: while the model thinks, kept if it is nearly the most likely one
};

// Sequences whose rules look back at drafts (penalties, bad words, constraints) are checked by
// kTargetMatch, except under kGreedy.
struct DraftCheck {
  static constexpr int kMostBest = 32;  // the most that candidates and best may be
  DraftRule rule = DraftRule::kTargetMatch;
  // kTopP: a draft is looked up among so many of the most likely tokens. Behind them the second
  // most likely token is kept, too, if the next `window` drafts are the most likely ones.
  int candidates = 5, window = 2;
  // kRelaxed: a draft is kept if it is among the `best` most likely tokens and its probability is
  // at most `delta` below that of the first, between the tokens that begin and end a thought.
  int best = 10;
  float delta = 0.6f;
  Token think_begin = -1, think_end = -1;
  bool operator==(const DraftCheck&) const = default;
};

// All values as text, for a comparison.
std::string describe(const DraftCheck& check);

}  // namespace skiff
