// message/request.h -- what enters the engine and what leaves it. Plain data for every room.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/shared_list.h"

namespace skiff {

using Token = int32_t;
using SeqId = uint64_t;

constexpr int kNoLogprobs = -1;
constexpr int kAllLogprobs = 1 << 30;  // the whole vocabulary

// How the next token is drawn. Order of work: raw log-probabilities are taken first; then
// bad words, min_tokens, logit_bias, repetition, presence and frequency edit the logits;
// then temperature, min_p, top_k, top_p (a part of what these two leave); then the draw.
struct SamplingParams {
  float temperature = 1;              // >= 0; 0: greedy
  float top_p = 1;                    // (0, 1]; 0 is greedy, as in FastDeploy
  float min_p = 0;                    // [0, 1]
  int top_k = 0;                      // 0 or -1: off
  float repetition = 1;               // > 0; counts prompt and output
  float presence = 0, frequency = 0;  // [-2, 2]; count output only
  uint64_t seed = 0;                  // the draw is a pure function of (seed, output index, logits)
  int logprobs = kNoLogprobs;         // per output token: the chosen one and this many best
  int prompt_logprobs = kNoLogprobs;  // the same per prompt token; turns prefix reuse off
  int min_tokens = 0;                 // stop tokens cannot be drawn before this many
  SharedList<std::pair<Token, float>> logit_bias;
  SharedList<std::vector<Token>> bad_words;  // token sequences that must not appear
  bool operator==(const SamplingParams&) const = default;
};

// Stop strings are found at the edge, where text is; the engine knows tokens only.
struct StopRule {
  int max_tokens = 1024;     // >= 1
  SharedList<Token> tokens;  // any of these ends the sequence (the caller adds EOS, unless
                             // ignore_eos was asked for)
  bool operator==(const StopRule&) const = default;
};

// Whose keys and values a sequence may find in the prefix cache, and who may find its own.
struct CacheSharing {
  bool share = true;  // false: neither
  std::string salt;   // only those with the same one; "" is one of them
};

struct NewSequence {
  SeqId id = 0;  // unique for the life of the engine
  std::vector<Token> prompt;
  SamplingParams params;
  StopRule stop;
  int priority = 0;  // lower first
  CacheSharing cache;
};

struct Cancel {
  SeqId id;
};
// A lower tier of the cache has done what it was asked to, or could not (see kv/tiers.h).
struct TierDone {
  uint64_t job = 0;
  bool ok = false;
  double seconds = 0;  // that it took; 0: not measured
  bool late = false;   // given up after so many seconds: a record that was to be read may be good
};
// The cache's file is out of use, because its disk does not answer, or in use again.
struct TierState {
  bool usable = true;
};
using Command = std::variant<NewSequence, Cancel, TierDone, TierState>;

// kStop: a stop token (the last of the event's tokens). kLength: max_tokens or the context is
// full. kExhausted: refused, see Event::why.
enum class Finish { kNone, kStop, kLength, kCancelled, kExhausted };

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
};
// One position: the token that stands there, its rank (1 = most likely), and the best ones.
struct PositionLogprobs {
  TokenLogprob chosen;
  int rank = 0;
  std::vector<TokenLogprob> top;  // best first
};

struct Event {
  SeqId seq = 0;
  std::vector<Token> tokens;
  Finish finish = Finish::kNone;
  std::vector<PositionLogprobs> logprobs;         // one per token if asked for
  std::vector<PositionLogprobs> prompt_logprobs;  // positions 1.. of the prompt, in order, in
                                                  // pieces as chunks are computed
  bool admitted = false;                          // true once, when the sequence first gets a slot
  int cached = 0;   // with `admitted`: prompt tokens found in the prefix cache
  std::string why;  // with kExhausted
};

}  // namespace skiff
