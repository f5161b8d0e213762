#include "serve/service/reply_builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/seconds.h"

namespace skiff::service {

Reply ReplyBuilder::build(OpenRequest& request, OpenSequence& sequence, Event& event) {
  Reply reply;
  if (event.admitted && sequence.admitted == ServiceClock::time_point{}) {
    sequence.admitted = ServiceClock::now();
    request.usage.cached = std::max(request.usage.cached, event.cached);
    metrics_.sequence_admitted(seconds(sequence.admitted - request.arrived), request.usage.prompt,
                               event.cached);
  }
  std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
            std::back_inserter(sequence.prompt_logprobs));
  reply.finish = event.finish;
  reply.why = std::move(event.why);
  if (reply.finish == Finish::kExhausted) metrics_.refused(reply.refusal);
  append_tokens(request, sequence, event, reply);
  const int gained = static_cast<int>(reply.tokens.size());
  if (gained > 0) measure_tokens(request, sequence, gained);
  sequence.generated += gained;
  request.usage.completion += gained;
  if (reply.finish != Finish::kNone) {
    if (!sequence.text->stopped()) reply.text += sequence.text->flush();
    end(request, sequence, reply);
  }
  if (gained > 0 || reply.finish != Finish::kNone)
    reply.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  reply.usage = request.usage;
  return reply;
}

// A stop string ends the reply at the token that completes it: later tokens are dropped, and the
// engine is asked to cancel the sequence.
void ReplyBuilder::append_tokens(const OpenRequest& request, OpenSequence& sequence, Event& event,
                                 Reply& reply) {
  const Prepared& prepared = request.prepared;
  reply.tokens = std::move(event.tokens);
  reply.logprobs = std::move(event.logprobs);
  for (size_t i = 0; i < reply.tokens.size(); ++i) {
    const Token token = reply.tokens[i];
    const bool stop_token = event.finish == Finish::kStop && i + 1 == reply.tokens.size();
    if (!stop_token || prepared.include_stop) reply.text += sequence.text->push(token);
    if (sequence.text->stopped()) {
      if (event.finish == Finish::kNone || i + 1 < reply.tokens.size()) engine_.cancel(sequence.id);
      reply.tokens.resize(i + 1);
      if (reply.logprobs.size() > i + 1) reply.logprobs.resize(i + 1);
      reply.finish = Finish::kStop;
      reply.stop_reason = sequence.text->stop_found();
      return;
    }
    if (stop_token &&
        std::find(prepared.eos.begin(), prepared.eos.end(), token) == prepared.eos.end())
      reply.stop_reason = token;
  }
}

void ReplyBuilder::measure_tokens(const OpenRequest& request, OpenSequence& sequence, int count) {
  const auto now = ServiceClock::now();
  if (sequence.generated == 0) {
    sequence.first_token = sequence.last_token = now;
    metrics_.first_token(seconds(now - request.arrived), seconds(now - sequence.admitted));
    --count;
  }
  if (count > 0) metrics_.tokens(count, seconds(now - sequence.last_token));
  sequence.last_token = now;
}

void ReplyBuilder::end(OpenRequest& request, OpenSequence& sequence, Reply& reply) {
  const auto now = ServiceClock::now();
  sequence.ended = true;
  if (reply.finish != Finish::kStop && reply.finish != Finish::kLength) request.failed = true;
  metrics_.sequence_ended({.finish = reply.finish,
                           .since_arrival = seconds(now - request.arrived),
                           .since_admission = seconds(now - sequence.admitted),
                           .since_first_token = seconds(now - sequence.first_token),
                           .generated = sequence.generated});
  reply.last = --request.open == 0;
  if (!reply.last) return;
  int longest = 0;
  for (const OpenSequence& other : request.sequences) longest = std::max(longest, other.generated);
  metrics_.request_ended(!request.failed, seconds(now - request.arrived), longest);
}

}  // namespace skiff::service
