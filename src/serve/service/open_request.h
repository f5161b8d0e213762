// serve/service/open_request.h -- a request that the engine works on. Private to EngineService.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "message/request.h"
#include "message/token_constraint.h"
#include "serve/service/metrics.h"
#include "serve/service/reasoning_meter.h"
#include "serve/service/service.h"
#include "text/detokenizer.h"

namespace skiff::service {

using ServiceClock = std::chrono::steady_clock;
constexpr ServiceClock::time_point kNever = ServiceClock::time_point::max();

// One of the n sequences of a request. After start() only the output thread touches it, except for
// `waiting`.
struct OpenSequence {
  SeqId id = 0;
  std::unique_ptr<text::Detokenizer> text;
  std::unique_ptr<answer::AnswerParser> answer;  // null: the reply is not split
  std::vector<PositionLogprobs> prompt_logprobs;
  // With a budget of reasoning: the tokens so far, and whether it still holds.
  std::vector<Token> output;
  bool bounded = false;
  std::unique_ptr<ReasoningMeter> meter;  // where `answer` does not know the reasoning
  bool resumes = false;  // the end of the reasoning was put in: the engine has to go on from there
  int generated = 0;
  Usage usage;  // what this sequence alone has used
  // The sequence's own constraint, which says whether it failed; null if there is none.
  std::shared_ptr<const TokenConstraint> constraint = nullptr;
  bool ended = false;
  bool waiting = true;  // for its first place in the batch; guarded by the table's mutex
  ServiceClock::time_point admitted{}, first_token{}, last_token{};
};

struct OpenRequest {
  RequestId id = 0;
  Service::Sink sink;
  Metrics* metrics = nullptr;  // in which it counts; not null, and outlives it
  Prepared prepared;           // its prompt has been given to the engine
  std::vector<Token> prompt;   // kept where a sequence may have to resume
  std::vector<OpenSequence> sequences;
  int open = 0;  // sequences that have not ended
  bool failed = false;
  Usage usage;
  ServiceClock::time_point arrived{};
  std::chrono::system_clock::time_point arrived_at{};  // for logs
  // What the sequences that have ended leave.
  int calls = 0, broken_calls = 0;
  std::vector<Finish> finishes;
  // Guarded by the table's mutex.
  bool waiting = true;  // none of its sequences has had a place in the batch yet
  ServiceClock::time_point deadline = kNever;
};

}  // namespace skiff::service
