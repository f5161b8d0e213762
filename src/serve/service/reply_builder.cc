#include "serve/service/reply_builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/seconds.h"

namespace skiff::service {
namespace {

bool budget_is_spent(const Prepared& prepared, const OpenSequence& sequence) {
  if (!sequence.bounded || !sequence.text->between_characters()) return false;
  if (const auto& meter = sequence.meter)
    return meter->in_reasoning() && meter->tokens() >= prepared.reasoning_budget;
  return sequence.answer->in_reasoning() &&
         sequence.answer->reasoning_tokens() >= prepared.reasoning_budget;
}

// Counts what an event brought, for its sequence and for all of them. The prompt was counted
// before.
void count(const Event& event, int gained, int reasoned, OpenRequest& request,
           OpenSequence& sequence) {
  for (Usage* usage : {&request.usage, &sequence.usage}) {
    usage->completion += gained;
    usage->reasoning += reasoned;
    usage->accepted += event.kept;
    usage->rejected += event.drafted - event.kept;
  }
}

int reasoning_tokens(const OpenSequence& sequence) {
  return sequence.answer ? sequence.answer->reasoning_tokens() : 0;
}

}  // namespace

Reply ReplyBuilder::build(OpenRequest& request, OpenSequence& sequence, Event& event) {
  Reply reply;
  if (event.admitted && sequence.admitted == ServiceClock::time_point{}) {
    sequence.admitted = ServiceClock::now();
    sequence.usage.cached = event.cached;
    request.usage.cached = std::max(request.usage.cached, event.cached);
    request.metrics->sequence_admitted(seconds(sequence.admitted - request.arrived),
                                       request.usage.prompt, event.cached);
  }
  std::move(event.prompt_logprobs.begin(), event.prompt_logprobs.end(),
            std::back_inserter(sequence.prompt_logprobs));
  reply.finish = event.finish;
  reply.why = std::move(event.why);
  reply.pooled = std::move(event.pooled);
  const bool unfollowed = sequence.constraint && sequence.constraint->failed();
  if (reply.finish != Finish::kNone && unfollowed) {
    event.finish = reply.finish = Finish::kExhausted;
    reply.why = "the reply could not follow its constraint to the end";
  }
  if (reply.finish == Finish::kExhausted) request.metrics->refused(reply.refusal);
  const int reasoned = reasoning_tokens(sequence);
  append_tokens(request, sequence, event, reply);
  for (DraftLogprobs& one : event.draft_logprobs) one.at += sequence.generated;
  reply.draft_logprobs = std::move(event.draft_logprobs);
  if (!request.prompt.empty())
    sequence.output.insert(sequence.output.end(), reply.tokens.begin(), reply.tokens.end());
  const int gained = static_cast<int>(reply.tokens.size());
  if (gained > 0) measure_tokens(request, sequence, gained);
  sequence.generated += gained;
  count(event, gained, reasoning_tokens(sequence) - reasoned, request, sequence);
  if (reply.finish != Finish::kNone) {
    flush(sequence, reply);
    end(request, sequence, reply);
  }
  if (gained > 0 || reply.finish != Finish::kNone)
    reply.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  reply.usage = request.usage;
  reply.own = sequence.usage;
  return reply;
}

void ReplyBuilder::flush(OpenSequence& sequence, Reply& reply) {
  if (!sequence.text->stopped()) {
    const std::string rest = sequence.text->flush();
    reply.text += rest;
    if (sequence.answer) sequence.answer->append(rest, reply.parts);
  }
  if (sequence.answer) sequence.answer->finish(reply.finish == Finish::kStop, reply.parts);
}

void ReplyBuilder::append_token(OpenSequence& sequence, Token token, Reply& reply) {
  const std::string text = sequence.text->push(token);
  reply.text += text;
  if (sequence.answer) sequence.answer->push(text, reply.parts);
  if (sequence.meter && sequence.bounded) sequence.meter->push(token);
}

// Later tokens are dropped. The engine does not know of it.
void ReplyBuilder::cut_after(Event& event, size_t count, Reply& reply) {
  reply.tokens.resize(count);
  event.kept = std::min(event.kept, static_cast<int>(count));
  std::erase_if(event.draft_logprobs,
                [count](const DraftLogprobs& one) { return one.at >= static_cast<int>(count); });
  if (reply.logprobs.size() > count) reply.logprobs.resize(count);
}

// The mark counts as part of the reply, also against max_tokens and for stop strings, but not of
// the reasoning. Its tokens are certain.
void ReplyBuilder::end_reasoning(const OpenRequest& request, OpenSequence& sequence, Reply& reply) {
  const Prepared& prepared = request.prepared;
  const size_t used = static_cast<size_t>(sequence.generated) + reply.tokens.size();
  const size_t room = static_cast<size_t>(prepared.stop.max_tokens) - used;
  std::string text;
  const size_t most = std::min(room, prepared.reasoning_end.size());
  for (size_t i = 0; i < most && !sequence.text->stopped(); ++i) {
    const Token token = prepared.reasoning_end[i];
    text += sequence.text->push(token);
    reply.tokens.push_back(token);
    if (prepared.params.logprobs != kNoLogprobs)
      reply.logprobs.push_back({.chosen = {token, 0}, .rank = 1, .top = {{token, 0}}});
  }
  reply.text += text;
  if (sequence.answer) sequence.answer->append(text, reply.parts);
  sequence.bounded = false;
  if (sequence.text->stopped()) {
    reply.stop_reason = sequence.text->stop_found();
    reply.finish = Finish::kStop;
    return;
  }
  sequence.resumes = room > prepared.reasoning_end.size();
  reply.finish = sequence.resumes ? Finish::kNone : Finish::kLength;
}

// A stop string, or the only call that was asked for, ends the reply at the token that completes
// it.
void ReplyBuilder::append_tokens(const OpenRequest& request, OpenSequence& sequence, Event& event,
                                 Reply& reply) {
  const Prepared& prepared = request.prepared;
  reply.tokens = std::move(event.tokens);
  reply.logprobs = std::move(event.logprobs);
  for (size_t i = 0; i < reply.tokens.size(); ++i) {
    const Token token = reply.tokens[i];
    const bool stop_token = event.finish == Finish::kStop && i + 1 == reply.tokens.size();
    if (!stop_token || prepared.include_stop) append_token(sequence, token, reply);
    const bool stopped = sequence.text->stopped();
    if (stopped || (sequence.answer && sequence.answer->ended())) {
      if (stopped) reply.stop_reason = sequence.text->stop_found();
      if (event.finish == Finish::kNone || i + 1 < reply.tokens.size()) engine_.cancel(sequence.id);
      cut_after(event, i + 1, reply);
      reply.finish = Finish::kStop;
      return;
    }
    if (!stop_token && budget_is_spent(prepared, sequence)) {
      cut_after(event, i + 1, reply);
      end_reasoning(request, sequence, reply);
      // A sequence that resumes has the place of this one, which ends when that comes.
      if (!sequence.resumes) engine_.cancel(sequence.id);
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
    request.metrics->first_token(seconds(now - request.arrived), seconds(now - sequence.admitted));
    --count;
  }
  if (count > 0) request.metrics->tokens(count, seconds(now - sequence.last_token));
  sequence.last_token = now;
}

void ReplyBuilder::end(OpenRequest& request, OpenSequence& sequence, Reply& reply) {
  const auto now = ServiceClock::now();
  sequence.ended = true;
  if (sequence.answer) {
    request.calls += sequence.answer->calls();
    request.broken_calls += sequence.answer->broken();
    request.metrics->tool_calls(sequence.answer->calls(), sequence.answer->broken());
  }
  request.finishes.push_back(reply.finish);
  if (reply.finish != Finish::kStop && reply.finish != Finish::kLength) request.failed = true;
  request.metrics->sequence_ended(
      {.finish = reply.finish,
       .since_arrival = seconds(now - request.arrived),
       .since_admission = seconds(now - sequence.admitted),
       .since_first_token = sequence.generated > 0 ? seconds(now - sequence.first_token) : 0,
       .generated = sequence.generated});
  reply.last = --request.open == 0;
  if (!reply.last) return;
  int longest = 0;
  for (const OpenSequence& other : request.sequences) longest = std::max(longest, other.generated);
  request.metrics->request_ended(!request.failed, seconds(now - request.arrived), longest);
}

}  // namespace skiff::service
