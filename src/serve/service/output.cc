#include "serve/service/output.h"

#include <pthread.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "serve/service/constraint_compiler.h"
#include "serve/service/new_sequences.h"
#include "serve/service/request_report.h"

namespace skiff::service {

void Output::start() {
  thread_ = std::thread([this] { run(); });
}

void Output::stop() {
  core_.events->close();
  if (thread_.joinable()) thread_.join();
  aborts_.close();
  report_left();
}

void Output::run() {
  pthread_setname_np(pthread_self(), "output");
  for (;;) {
    auto batch = core_.events->wait_until(core_.table.next_deadline());
    if (batch.empty() && core_.events->closed()) return;
    for (Event& event : batch) handle(event);
    try {
      end_expired();
      end_aborted();
      report_left();
    } catch (const std::exception& e) {
      spdlog::error("the end of a request could not be reported: {}", escaped(e.what()));
    }
  }
}

void Output::handle(Event& event) {
  const auto sequence = core_.table.find(event);
  if (!sequence) return;
  try {
    send_reply(*sequence, event);
  } catch (const std::exception& e) {
    spdlog::error("a reply could not be made: {}", escaped(e.what()));
    fail(*sequence);
  }
}

// A reply could not be made, for want of memory for instance: that request alone ends.
void Output::fail(const SequenceRef& sequence) {
  const OpenRequest& request = *sequence.request;
  cancel(request.id);
  Reply reply;
  reply.index = static_cast<int>(sequence.index);
  reply.finish = Finish::kCancelled;
  reply.usage = request.usage;
  try {
    request.sink(std::move(reply));
  } catch (const std::exception& e) {
    // The destruction of the sink still ends the client's reply.
    spdlog::debug("a client could not be told: {}", e.what());
  }
}

void Output::send_reply(const SequenceRef& sequence, Event& event) {
  OpenRequest& request = *sequence.request;
  Reply reply = replies_.build(request, request.sequences[sequence.index], event);
  reply.index = static_cast<int>(sequence.index);
  if (reply.text.empty() && reply.tokens.empty() && reply.finish == Finish::kNone) return;
  if (!core_.table.remove_ended(sequence)) return;  // cancelled meanwhile
  const bool last = reply.last;
  std::optional<Refusal> refusal;
  if (reply.finish == Finish::kExhausted) refusal = reply.refusal;
  if (last) report_end(request, refusal, core_.observer.get());
  request.sink(std::move(reply));
  if (std::exchange(request.sequences[sequence.index].resumes, false)) resume(sequence);
}

void Output::resume(const SequenceRef& sequence) {
  const SeqId id = core_.next_id.fetch_add(1);
  const SeqId before = sequence.request->sequences[sequence.index].id;
  if (!core_.table.rename(sequence, id)) return;  // cancelled meanwhile
  if (const auto& answer = sequence.request->prepared.answer_constraint)
    sequence.request->sequences[sequence.index].constraint =
        for_choice(answer, sequence.request->prepared.n);
  NewSequence rest = rest_of(*sequence.request, sequence.index, id);
  rest.continues = before;
  core_.engine.submit(std::move(rest));
  // Whoever has cancelled the request since may have been ahead of the engine.
  if (!core_.table.contains(sequence.request->id)) core_.engine.cancel(id);
}

// Text that was withheld for a possible stop string or the rest of a character. It is sent for all
// sequences before the first of them fails, because a stream ends with the first failure.
void Output::flush_text(OpenRequest& request, const std::vector<size_t>& running) {
  for (const size_t i : running) {
    Reply reply;
    reply.index = static_cast<int>(i);
    ReplyBuilder::flush(request.sequences[i], reply);
    reply.usage = request.usage;
    reply.own = request.sequences[i].usage;
    if (!reply.text.empty() || !reply.parts.empty()) request.sink(std::move(reply));
  }
}

void Output::end_expired() {
  while (const auto expired = core_.table.remove_expired(ServiceClock::now()))
    end_early(expired->removed, expired->end);
}

void Output::end_early(const RequestTable::Removed& removed, const Reply& end) {
  const auto& [request, running] = removed;
  request->metrics->refused(end.refusal);
  flush_text(*request, running);
  for (const size_t i : running) core_.engine.cancel(request->sequences[i].id);
  request->finishes.insert(request->finishes.end(), running.size(), Finish::kExhausted);
  report_end(*request, end.refusal, core_.observer.get());
  for (const size_t i : running) {
    request->metrics->sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
    Reply reply = end;
    reply.index = static_cast<int>(i);
    reply.last = --request->open == 0;
    request->sink(std::move(reply));
  }
}

void Output::end_aborted() {
  for (AbortQueue::Job& job : aborts_.take()) {
    const bool paused = job.wish.why == Refusal::kPaused;
    Reply end;
    end.finish = Finish::kExhausted;
    end.refusal = job.wish.why;
    end.why = paused ? "the server was paused" : "the request was aborted by the operator";
    std::vector<Aborted> aborted;
    for (const auto& removed : core_.table.remove_named(job.wish.all, AbortNames(job.wish.ids))) {
      const OpenRequest& request = *removed.request;
      const SharedTag& tag = request.prepared.tag;
      end.usage = request.usage;
      aborted.push_back({.id = tag ? tag->id : "", .generated = request.usage.completion});
      end_early(removed, end);
    }
    job.done.set_value(std::move(aborted));
  }
}

// Only here does nobody else touch the counts of a request that was cancelled.
void Output::report_left() {
  std::vector<std::shared_ptr<OpenRequest>> gone;
  {
    const std::lock_guard lock(left_mutex_);
    gone.swap(left_);
  }
  for (const auto& request : gone) {
    request->finishes.resize(request->sequences.size(), Finish::kCancelled);
    report_end(*request, std::nullopt, core_.observer.get());
  }
}

void Output::cancel(RequestId id) {
  const auto [request, running] = core_.table.remove(id);
  for (const size_t i : running) {
    core_.engine.cancel(request->sequences[i].id);
    request->metrics->sequence_ended({Finish::kCancelled, 0, 0, 0, 0});
  }
  if (!request) return;
  {
    const std::lock_guard lock(left_mutex_);
    left_.push_back(request);
  }
  core_.events->wake();
}

std::vector<Aborted> Output::abort(AbortWish wish) {
  auto done = aborts_.add(std::move(wish));
  core_.events->wake();
  return done.get();
}

}  // namespace skiff::service
