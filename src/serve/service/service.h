// serve/service/service.h -- the engine as front ends see it: text or tokens in, text and tokens
// out. No JSON of a protocol, no HTTP and no tensor on either side.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "message/request.h"
#include "text/chat/chat_template.h"
#include "text/stop_finder.h"
#include "text/tokenizer.h"

namespace skiff {

// Tokens are taken as they are; a string is a raw prompt; a conversation goes through the model's
// chat template.
using PromptInput = std::variant<std::vector<Token>, std::string, Conversation>;

struct Request {
  PromptInput input;
  std::string chat_template;  // replaces the model's own for this request, if not empty
  SamplingParams params;      // `seed` is ignored unless seed_given
  bool seed_given = false;    // otherwise every request draws its own
  StopRule stop{.max_tokens = 0,
                .tokens = {}};            // max_tokens 0: what the context leaves; clipped to that
  std::vector<std::string> stop_strings;  // empty ones are ignored
  bool include_stop = false;              // the stop string or token is part of the text
  bool ignore_eos = false;                // else the model's EOS tokens are added to stop.tokens
  bool skip_special = true;               // special tokens leave no text
  bool add_special = true;                // a raw prompt gets BOS, where the tokenizer adds one
  bool template_special = false;          // the same for a conversation, whose template has it
  bool message_special = false;           // what users and tools wrote may spell special tokens
  std::vector<Token> begun;               // a reply begun elsewhere, put behind the prompt
  int truncate_prompt = 0;                // keep the last so many tokens; -1: what leaves room for
                                          // max_tokens; 0: refuse what is too long
  std::vector<std::string> bad_words;     // added to params.bad_words, with and without a space
  bool streamed = false;                  // pieces leave as they come, so that none of them pile up
  int n = 1;                              // sequences; number i draws with seed + i
  int priority = 0;                       // lower first
  CacheSharing cache;                     // of the prefix cache
  double timeout_seconds = 0;             // end to end; 0: as long as the service allows, which is
                                          // also the most
};

// Why a request that is well formed was not, or not fully, served.
enum class Refusal {
  kConcurrency,    // too many requests under way
  kWaitingTokens,  // too many prompt tokens wait
  kWaitingTime,    // it waited too long for a place in the batch
  kTimeout,        // it was not done in time
  kNeverFits,      // no state of the engine could run it
  kStopping,       // the service goes down
};
constexpr int kRefusals = 6;

struct Usage {
  int prompt = 0, cached = 0, completion = 0;  // tokens; completion is of all n sequences so far
};

// A piece of one of the n sequences. Pieces of one sequence arrive in order.
struct Reply {
  int index = 0;              // 0 .. n-1
  std::string text;           // certain by now: whole characters, no beginning of a stop string
  std::vector<Token> tokens;  // may run ahead of the text
  std::vector<PositionLogprobs> logprobs;         // one per token, if asked for
  std::vector<PositionLogprobs> prompt_logprobs;  // with the first piece that has tokens: all
                                                  // positions 1.. of the prompt
  Finish finish = Finish::kNone;                  // the last piece of this sequence
  std::variant<std::monostate, std::string, Token> stop_reason;  // the stop string or stop token
                                                                 // found; EOS leaves it empty
  std::string why;                                               // with Finish::kExhausted
  Refusal refusal = Refusal::kNeverFits;                         // the same
  int retry_seconds = 0;  // with a refusal that another try may get around; else 0
  Usage usage;
  bool last = false;  // all n sequences have ended; nothing comes after this
};

// A request that has been checked, templated and tokenized, ready to run.
struct Prepared {
  std::vector<Token> prompt;
  SamplingParams params;  // seed and bad_words resolved
  StopRule stop;          // max_tokens and EOS resolved
  StopStrings stop_strings;
  SharedList<Token> eos;  // those of stop.tokens that are no stop_reason
  bool include_stop = false, skip_special = true;
  int n = 1, priority = 0;
  CacheSharing cache;
  double timeout_seconds = 0;
};

using RequestId = uint64_t;

// A queue that is full.
struct Overload {
  std::string why;  // with the numbers
  int retry_seconds = 1;
};

// For probes. Tokens are counted since start.
struct ServiceLoad {
  int running = 0, waiting = 0;  // sequences
  double kv_used = 0;            // 0 .. 1
};

// All methods are safe from any thread.
class Service {
 public:
  // On an output thread, one call at a time for one request; must be quick and must not throw.
  using Sink = std::function<void(Reply)>;

  // What a sane limit on Request::n is; more is kInvalid.
  static constexpr int kMaxN = 128;
  // Bytes of text that are turned into tokens, or tokens into text, for their own sake.
  static constexpr size_t most_text(int max_model_len) {
    return std::max<size_t>(1 << 20, 64 * static_cast<size_t>(max_model_len));
  }

  virtual ~Service() = default;

  // Templating and tokenizing happen here, on the caller's thread. Error::field is "input" for a
  // prompt that cannot be used, "input_length" for one that does not fit the context, else the
  // name that OpenAI's API has for the offending value (temperature, n, logit_bias, ...).
  Result<Prepared> prepare(Request request) const {
    std::vector<PromptInput> prompts;
    prompts.push_back(std::move(request.input));
    auto prepared = prepare_all(std::move(request), std::move(prompts));
    if (!prepared) return prepared.error();
    return std::move(prepared->front());
  }
  // The same for several prompts (at least one) of one call that are alike in everything else:
  // `common.input` is not looked at. Its lists are checked once and shared by all results.
  virtual Result<std::vector<Prepared>> prepare_all(Request common,
                                                    std::vector<PromptInput> prompts) const = 0;
  // The prompt's tokens as prepare() would find them, also where they are too many for the context
  // (to 64 bytes of text for each of its positions, or a megabyte). Nothing else is checked.
  virtual Result<std::vector<Token>> tokenize(const Request& request) const = 0;
  // Never blocks. `sink` may be called before this returns. A service that is stopping answers
  // through the sink, with Finish::kExhausted for every sequence.
  virtual RequestId start(Prepared request, Sink sink) = 0;
  // Nothing if all of these may be started now; else they were counted as refused. Two callers at
  // the same time may both be let in where there is room for one.
  virtual std::optional<Overload> overloaded(std::span<const Prepared> requests) = 0;
  // True if any request would be refused so.
  virtual bool queue_full() const = 0;
  // Counts a refusal that the caller decided on; when to come again, in seconds.
  virtual int refused(Refusal reason) = 0;
  // Stops the sequences at once and frees what they hold. The sink is not called any more, except
  // for a call that is under way on the output thread. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;

  Result<RequestId> submit(Request request, Sink sink) {
    Result<Prepared> prepared = prepare(std::move(request));
    if (!prepared) return prepared.error();
    return start(std::move(*prepared), std::move(sink));
  }

  virtual const Tokenizer& tokenizer() const = 0;
  virtual int max_model_len() const = 0;
  // ok, or why requests would not be answered now.
  virtual Status health() const = 0;
  virtual ServiceLoad load() const = 0;
  // Prometheus text format 0.0.4.
  virtual std::string metrics() const = 0;
};

}  // namespace skiff
