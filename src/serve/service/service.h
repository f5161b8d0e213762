// serve/service/service.h -- the engine as protocols see it: text or tokens in, text and tokens
// out. It knows no protocol's JSON, no HTTP and no tensors.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "grammar/constraint.h"
#include "message/request.h"
#include "serve/service/request_tag.h"
#include "text/answer/answer_parser.h"
#include "text/chat/chat_template.h"
#include "text/stop_finder.h"
#include "text/tokenizer.h"

namespace skiff::service {

struct PooledModel;  // serve/service/pooled_model.h

// Tokens are used as given; a string is a raw prompt; a conversation goes through the model's chat
// template.
using PromptInput = std::variant<std::vector<Token>, std::string, text::Conversation>;

struct Request {
  PromptInput input;
  std::string chat_template;  // replaces the model's own for this request, if not empty
  SamplingParams params;      // `seed` counts only if seed_given
  bool seed_given = false;    // otherwise every request gets a seed of its own
  // max_tokens 0: as many as the context leaves, which is also the bound.
  StopRule stop{.max_tokens = 0, .tokens = {}};
  std::vector<std::string> stop_strings;  // empty ones are ignored
  bool include_stop = false;              // the stop string or token is part of the text
  bool ignore_eos = false;                // else the model's EOS tokens are added to stop.tokens
  bool skip_special = true;               // special tokens add no text
  bool add_special = true;                // a raw prompt gets BOS if the tokenizer adds one
  bool template_special = false;          // the same for a conversation, whose template has BOS
  bool message_special = false;           // messages of users and tools may spell special tokens
  std::vector<Token> begun;               // the beginning of a reply, appended to the prompt
  std::string reference;                  // a text that the reply may repeat: it helps to draft
  // Number of tokens to keep, those at the end; 0: a prompt that is too long is refused; -1: it is
  // cut, and leaves room for max_tokens where these are fewer than the context.
  int truncate_prompt = 0;
  bool truncate_end = false;           // what is cut is the end: the first tokens are kept
  std::vector<std::string> bad_words;  // added to params.bad_words, with and without a space
  // Whether the reply is also split into the parts of an answer (Reply::parts), as far as the model
  // has a format for them.
  bool split_reasoning = false, split_calls = false;
  bool one_call = false;   // with split_calls: the reply ends with its first call
  bool must_call = false;  // with split_calls: the reply is calls of the conversation's tools
  // With split_reasoning: when the reply has reasoned for this many tokens, the mark that ends the
  // reasoning is put in; -1: it may reason as long as it likes.
  int reasoning_budget = -1;
  bool streamed = false;           // pieces are sent as they arrive, so none accumulate
  int n = 1;                       // sequences; number i draws with seed + i
  int priority = 0;                // lower values first
  CacheSharing cache;              // use of the prefix cache
  std::optional<KvOrigin> origin;  // see NewSequence
  std::optional<int> replica;      // see NewSequence
  double timeout_seconds = 0;      // end to end, at most what the service allows; 0: that
  // The prompt is pooled instead of continued: the reply is one vector. Only if the service has a
  // pooled_model(), which then serves nothing else.
  bool pool = false;
  // The form of the reply, and the name of the field that asked for it.
  std::optional<grammar::Constraint> constraint;
  std::string constraint_field;
};

// Why a well-formed request was not served, or not completely.
enum class Refusal {
  kConcurrency,    // too many requests under way
  kWaitingTokens,  // too many prompt tokens wait
  kWaitingTime,    // it waited too long for a place in the batch
  kTimeout,        // it was not done in time
  kNeverFits,      // no state of the engine could run it
  kStopping,       // the service goes down
  kPaused,         // the operator has paused the service
  kAborted,        // the operator ended this request
};
constexpr int kRefusals = 8;

// What becomes of requests under way: they end at once, or they may finish for some seconds before
// the rest ends so. New ones are refused from the beginning.
struct Ending {
  bool waits = false;
  double seconds = 0;
};

struct Usage {
  int prompt = 0, cached = 0;  // tokens
  int completion = 0;          // tokens that all n sequences have generated so far
  int reasoning = 0;           // those of them inside the reasoning
  int accepted = 0;            // those of them that were drafted (draft/)
  int rejected = 0;            // drafts that were checked and are not in the reply
};

// A piece of one of the n sequences. Pieces of one sequence arrive in order.
struct Reply {
  int index = 0;               // 0 .. n-1
  std::string text;            // final text: whole characters, no beginning of a stop string
  answer::AnswerEvents parts;  // the same text as reasoning, content and calls, if it is split
  std::vector<Token> tokens;   // may be ahead of the text
  std::vector<float> pooled;   // set with the end of a request that is pooled
  std::vector<PositionLogprobs> logprobs;     // one per token, if requested
  std::vector<DraftLogprobs> draft_logprobs;  // for drafts in the place of tokens, if requested
  // For positions 1.. of the prompt, if requested; set in the first piece that has tokens.
  std::vector<PositionLogprobs> prompt_logprobs;
  Finish finish = Finish::kNone;  // set in the last piece of this sequence
  // The stop string or stop token that was found; empty for EOS.
  std::variant<std::monostate, std::string, Token> stop_reason;
  std::string why;                        // set with Finish::kExhausted
  Refusal refusal = Refusal::kNeverFits;  // set with Finish::kExhausted
  int retry_seconds = 0;                  // set with a refusal that may not repeat; else 0
  Usage usage;
  Usage own;          // what this sequence alone has used
  bool last = false;  // all n sequences have ended; this is the last piece
};

class MeasuredConstraint;  // serve/service/constraint_compiler.h

// Whether the reply to such a request, whose `input` stands beside it, must follow a form.
// prepare() may have to compile that first, which takes a tenth of a second if it is refused as too
// complex.
bool asks_for_form(const Request& request, const PromptInput& input);

// A request that has been checked, templated and tokenized, ready to run.
struct Prepared {
  std::vector<Token> prompt;
  SharedList<Token> reference;
  SamplingParams params;  // seed and bad_words resolved
  StopRule stop;          // max_tokens and EOS resolved
  text::StopStrings stop_strings;
  SharedList<Token> eos;  // stop.tokens that set no stop_reason
  bool include_stop = false, skip_special = true;
  std::shared_ptr<const answer::AnswerOptions> answer;  // null: the reply is not split
  SharedList<Token> shown;                              // special tokens that the split needs
  int reasoning_budget = -1;                            // see Request
  std::vector<Token> reasoning_end;                     // what is put in; empty: no budget
  // How reasoning with a budget is found in a reply that is not split by it; null otherwise.
  std::shared_ptr<const answer::AnswerOptions> metered;
  SharedList<Token> metered_marks;  // special tokens that are its marks
  // params.constraint as it is behind the reasoning, for a reply whose reasoning was ended so.
  std::shared_ptr<const TokenConstraint> answer_constraint;
  int n = 1, priority = 0;
  CacheSharing cache;
  std::optional<KvOrigin> origin;  // see NewSequence
  std::optional<int> replica;      // see NewSequence
  double timeout_seconds = 0;
  Pooling pooling;
  // The kind of params.constraint, empty without one, and the work of its masks.
  std::string constraint_kind;
  std::shared_ptr<const MeasuredConstraint> measured;
  SharedTag tag;  // set by the protocol, not by prepare()
};

using RequestId = uint64_t;

// A queue that is full.
struct Overload {
  std::string why;  // one line with the numbers
  int retry_seconds = 1;
};

// Requests that shall end with an error.
struct AbortWish {
  bool all = false;
  std::vector<std::string> ids;  // if not all; see serve/service/aborts.h for the forms of a name
  Refusal why = Refusal::kAborted;
};
// One that did.
struct Aborted {
  std::string id;     // RequestTag::id; empty if it had no tag
  int generated = 0;  // tokens of all its sequences
};

// For probes. Tokens are counted since start.
struct ServiceLoad {
  int running = 0, waiting = 0;  // sequences
  double kv_used = 0;            // 0 .. 1
};

// All methods are safe from any thread.
class Service {
 public:
  // Called on an output thread, one call at a time for each request; must be quick and must not
  // throw.
  using Sink = std::function<void(Reply)>;

  // Bound on Request::n; more is kInvalid.
  static constexpr int kMaxN = 128;
  // Bound on the bytes of text that are tokenized, or decoded from tokens, without generating.
  static constexpr size_t max_text(int max_model_len) {
    return std::max<size_t>(1 << 20, 64 * static_cast<size_t>(max_model_len));
  }

  virtual ~Service() = default;

  // Applies the template and tokenizes, on the caller's thread. Error::field is "input" for a
  // prompt that cannot be used, "input_length" for one that does not fit the context, else the
  // name that OpenAI's API has for the offending value (temperature, n, logit_bias, ...).
  Result<Prepared> prepare(Request request) const {
    std::vector<PromptInput> prompts;
    prompts.push_back(std::move(request.input));
    auto prepared = prepare_all(std::move(request), std::move(prompts));
    if (!prepared) return prepared.error();
    return std::move(prepared->front());
  }
  // Prepares one or more prompts, as prepare() does one, that share all other options;
  // `common.input` is ignored. The lists of `common` are checked once and shared by all results.
  virtual Result<std::vector<Prepared>> prepare_all(Request common,
                                                    std::vector<PromptInput> prompts) const = 0;
  // Returns the prompt's tokens as prepare() would, even if the context is too short for them;
  // max_text() bounds the text. Nothing else is checked.
  virtual Result<std::vector<Token>> tokenize(const Request& request) const = 0;
  // Starts the sequences without blocking. `sink` may be called before this returns. A service that
  // is stopping answers through the sink, with Finish::kExhausted for every sequence.
  virtual RequestId start(Prepared request, Sink sink) = 0;
  // Nothing if all of these may be started now; otherwise they are counted as refused. Two
  // concurrent callers may both pass where there is room for one.
  virtual std::optional<Overload> overloaded(std::span<const Prepared> requests) = 0;
  // True if overloaded() would refuse any request.
  virtual bool queue_full() const = 0;
  // Counts a refusal that the caller decided on. Returns after how many seconds to retry.
  virtual int refused(Refusal reason) = 0;
  // Stops the sequences at once and frees their resources. The sink is not called again, except for
  // a call that is under way on the output thread. Unknown ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // Ends requests through their sinks and returns once that is done: not from a sink.
  virtual std::vector<Aborted> abort(AbortWish wish) = 0;
  // From pause() to resume() start() answers through the sink with Refusal::kPaused, and health()
  // is an error. Requests under way end in the same way; they are returned. Where they may finish
  // before, this waits for them, and a resume() meanwhile ends the wait and spares the rest.
  virtual std::vector<Aborted> pause(Ending ending) = 0;
  virtual void resume() = 0;
  virtual bool paused() const = 0;
  // What the prefix cache holds now is never found again by this process. Its blocks are free to be
  // overwritten already; those in the cache's file may be found after a restart.
  virtual void forget_prefixes() = 0;

  Result<RequestId> submit(Request request, Sink sink) {
    Result<Prepared> prepared = prepare(std::move(request));
    if (!prepared) return prepared.error();
    return start(std::move(*prepared), std::move(sink));
  }

  virtual const text::Tokenizer& tokenizer() const = 0;
  virtual int max_model_len() const = 0;
  // How the model is pooled; null if it generates. Lives as long as the service.
  virtual const PooledModel* pooled_model() const { return nullptr; }
  // ok, or the reason why requests would not be answered now.
  virtual Status health() const = 0;
  virtual ServiceLoad load() const = 0;
  // Prometheus text format 0.0.4. Of one replica: its own numbers and those of the requests that
  // were for it alone, where these are counted apart (ServiceConfig::replicas_apart).
  virtual std::string metrics_of(std::optional<int> replica) const = 0;
  std::string metrics() const { return metrics_of(std::nullopt); }
};

}  // namespace skiff::service
