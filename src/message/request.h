// message/request.h -- the values that enter the engine and leave it, as plain data for every room.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/shared_list.h"
#include "message/token_constraint.h"

namespace skiff {

using Token = int32_t;
using SeqId = uint64_t;

constexpr int kNoLogprobs = -1;
constexpr int kAllLogprobs = 1 << 30;  // the whole vocabulary

// How the next token is drawn, in this order: raw log-probabilities are taken first (processed
// ones, see message/logprobs_mode.h, last); then bad words, min_tokens, logit_bias, repetition,
// presence and frequency edit the logits; then temperature, min_p, top_k and top_p apply, top_p to
// the probability mass that min_p and top_k leave; then the token is drawn.
struct SamplingParams {
  float temperature = 1;              // >= 0; 0: greedy
  float top_p = 1;                    // (0, 1]; 0 is greedy, as in FastDeploy
  float min_p = 0;                    // [0, 1]
  int top_k = 0;                      // 0 or -1: off
  float repetition = 1;               // > 0; applies to tokens of the prompt and the output
  float presence = 0, frequency = 0;  // [-2, 2]; apply to tokens of the output only
  uint64_t seed = 0;                  // the draw is a pure function of (seed, output index, logits)
  int logprobs = kNoLogprobs;  // per output token: for the chosen token and this many best ones
  int prompt_logprobs = kNoLogprobs;  // per prompt token; turns prefix reuse off
  bool draft_logprobs = false;        // with `logprobs`: also for the drafts that a model has made
  int min_tokens = 0;                 // no stop token can be drawn before this many tokens
  SharedList<std::pair<Token, float>> logit_bias;
  SharedList<std::vector<Token>> bad_words;  // token sequences that must not appear
  // Allows the tokens of the output, after all other rules; null: all are allowed. Its form as
  // bytes (message/wire.h) is its source.
  std::shared_ptr<const TokenConstraint> constraint;
  bool operator==(const SamplingParams&) const = default;
};

// When a sequence ends. Stop strings are found where replies become text (serve/service); the
// engine knows tokens only.
struct StopRule {
  int max_tokens = 1024;     // >= 1
  SharedList<Token> tokens;  // any of these ends the sequence (the caller adds EOS unless
                             // ignore_eos is set)
  bool operator==(const StopRule&) const = default;
};

// Something besides tokens that the keys and values of positions [begin, end) depend on: the
// digest of an image whose placeholders stand there, or the identity of an adapter.
struct CacheExtra {
  static constexpr int kToTheEnd = 1 << 30;
  int begin = 0, end = kToTheEnd;
  std::string identity;
  bool operator==(const CacheExtra&) const = default;
};

// Decides which cached keys and values a sequence may reuse, and which sequences may reuse its own.
struct CacheSharing {
  bool share = true;  // false: the sequence neither finds cached blocks nor leaves any
  std::string salt;   // sequences share blocks only if their salts are equal; "" is a salt, too
  std::vector<CacheExtra> extras;  // blocks that overlap an extra are shared only with sequences
                                   // that have the same one
};

// For a sequence that is pooled instead of continued: its prompt is computed, no token is drawn,
// and the result is one vector.
struct Pooling {
  // Which rows behind the last norm the vector is made of: the last one, the first one, or the mean
  // of all. kNone: the sequence is continued.
  enum Rows : uint8_t { kNone, kLast, kFirst, kMean };
  Rows rows = kNone;
  // What the model's head makes of the row (kLast only) instead of the row itself.
  bool logits = false;
  std::vector<int32_t> columns;  // with `logits`: which of them, in this order; empty: all
  // Returns whether cached keys and values may stand for rows of the prompt: rows that were not
  // computed cannot be pooled.
  bool may_reuse() const { return rows == kNone || rows == kLast; }
  explicit operator bool() const { return rows != kNone; }
  bool operator==(const Pooling&) const = default;
};

// Where the keys and values of a prompt are computed, because somebody has asked for them there:
// the block server (peer/block_server.h) of another process.
struct KvOrigin {
  std::string host;  // a numeric address
  int port = 0;
  bool operator==(const KvOrigin&) const = default;
};

struct NewSequence {
  SeqId id = 0;  // unique for the life of the engine
  std::vector<Token> prompt;
  SamplingParams params;
  StopRule stop;
  int priority = 0;  // lower values run first
  CacheSharing cache;
  Pooling pooling = {};  // if set, `stop` and most of `params` have no meaning
  // A text that the output may repeat in part; it only helps to draft tokens (see draft/).
  SharedList<Token> reference = {};
  std::optional<KvOrigin> origin = {};  // used only where blocks come from other processes
  // A sequence whose prompt and output this prompt begins with. It is cancelled, and this one has
  // its place in the queue and its replica; where the context or the cache is full, this one ends
  // with kLength.
  std::optional<SeqId> continues = {};
  // The one of several replicas that computes it; none: the best one for it.
  std::optional<int> replica = {};
  int written = 0;  // the last tokens of the prompt that penalties count as output
};

struct Cancel {
  SeqId id;
};
// A lower tier of the cache reports that a job is done or has failed (see kv/tiers.h).
struct TierDone {
  uint64_t job = 0;
  bool ok = false;
  double seconds = 0;  // time that the job took; 0: not measured
  // The job was abandoned at its time limit; a record that was to be read may still be intact.
  bool late = false;
};
// A source of cached blocks is out of use, because its disk or its peer does not answer, or in use
// again.
struct TierState {
  int source = 0;  // its place in the list of BlockSources
  bool usable = true;
};
using Command = std::variant<NewSequence, Cancel, TierDone, TierState>;

// kStop: a stop token was drawn (the last of the event's tokens), or the sequence was pooled
// (Event::pooled). kLength: max_tokens or the context limit was reached. kExhausted: the sequence
// was refused, see Event::why.
enum class Finish { kNone, kStop, kLength, kCancelled, kExhausted };

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};
// One position: its token, that token's rank (1 = most likely), and the most likely tokens.
struct PositionLogprobs {
  TokenLogprob chosen;
  int rank = 0;
  std::vector<TokenLogprob> top;  // most likely first
  bool operator==(const PositionLogprobs&) const = default;
};

// The draft that stood in the place of a token, and what the model that drafts gave there.
struct DraftLogprobs {
  int at = 0;  // the place of the token: among those of the event, or of the whole reply
  PositionLogprobs logprobs;
  bool operator==(const DraftLogprobs&) const = default;
};

struct Event {
  SeqId seq = 0;
  std::vector<Token> tokens;
  Finish finish = Finish::kNone;
  std::vector<PositionLogprobs> logprobs;  // one per token, if requested
  // Positions 1.. of the prompt in order, delivered in pieces as chunks are computed.
  std::vector<PositionLogprobs> prompt_logprobs;
  // True in one event only, when the sequence first gets a slot.
  bool admitted = false;
  int cached = 0;                  // with `admitted`: prompt tokens found in the prefix cache
  std::string why;                 // set with kExhausted
  std::vector<float> pooled = {};  // set with kStop for a sequence that is pooled
  // Drafts that were checked for these tokens, and how many of the tokens they gave.
  int drafted = 0, kept = 0;
  // For those tokens in whose place a draft stood, if requested; drafts behind a wrong one stood
  // nowhere.
  std::vector<DraftLogprobs> draft_logprobs = {};
};

}  // namespace skiff
