#include "serve/service/request_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/seconds.h"

namespace skiff::service {

RequestTable::Added RequestTable::add(const std::shared_ptr<OpenRequest>& request) {
  std::lock_guard lock(mutex_);
  if (stopped_) return Added::kNo;
  if (!paused_.empty()) return Added::kPaused;
  requests_.emplace(request->id, request);
  ledger_.opened(request->arrived);
  for (size_t i = 0; i < request->sequences.size(); ++i) {
    ledger_.waits(request->arrived, request->usage.prompt);
    sequences_.emplace(request->sequences[i].id, SequenceRef{request, i});
  }
  set_deadline(*request);
  const bool next = request->deadline != kNever && deadlines_.begin()->second == request->id;
  return next ? Added::kNextDeadline : Added::kYes;
}

std::optional<RequestTable::SequenceRef> RequestTable::find(const Event& event) {
  std::lock_guard lock(mutex_);
  const auto found = sequences_.find(event.seq);
  if (found == sequences_.end()) return std::nullopt;
  const SequenceRef& ref = found->second;
  if (event.admitted) admit(*ref.request, ref.request->sequences[ref.index]);
  return ref;
}

void RequestTable::admit(OpenRequest& request, OpenSequence& sequence) {
  if (!std::exchange(sequence.waiting, false)) return;
  ledger_.admitted(ServiceClock::now(), request.usage.prompt);
  if (std::exchange(request.waiting, false)) set_deadline(request);
}

bool RequestTable::remove_ended(const SequenceRef& sequence) {
  const OpenRequest& request = *sequence.request;
  std::lock_guard lock(mutex_);
  if (!requests_.contains(request.id)) return false;
  if (request.sequences[sequence.index].ended)
    sequences_.erase(request.sequences[sequence.index].id);
  if (request.open == 0) take(request.id);
  return true;
}

bool RequestTable::rename(const SequenceRef& sequence, SeqId id) {
  std::lock_guard lock(mutex_);
  if (!requests_.contains(sequence.request->id)) return false;
  SeqId& old = sequence.request->sequences[sequence.index].id;
  sequences_.erase(std::exchange(old, id));
  sequences_.emplace(id, sequence);
  return true;
}

bool RequestTable::contains(RequestId id) const {
  std::lock_guard lock(mutex_);
  return requests_.contains(id);
}

RequestTable::Removed RequestTable::remove(RequestId id) {
  std::lock_guard lock(mutex_);
  return take(id);
}

RequestTable::Removed RequestTable::take(RequestId id) {
  Removed removed;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return removed;
  removed.request = std::move(found->second);
  requests_.erase(found);
  OpenRequest& request = *removed.request;
  const Time now = ServiceClock::now();
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    OpenSequence& sequence = request.sequences[i];
    if (std::exchange(sequence.waiting, false)) ledger_.gave_up(now, request.usage.prompt);
    if (sequences_.erase(sequence.id) > 0) removed.running.push_back(i);
  }
  deadlines_.erase({request.deadline, request.id});
  ledger_.closed(now);
  return removed;
}

// Seconds from end to end; 0: any number.
double RequestTable::seconds_allowed(const OpenRequest& request) const {
  const double limit = ledger_.limits().request_seconds, asked = request.prepared.timeout_seconds;
  if (limit == 0 || asked == 0) return std::max(limit, asked);
  return std::min(limit, asked);
}

void RequestTable::set_deadline(OpenRequest& request) {
  const auto after = [&](double seconds) {
    return request.arrived + std::chrono::duration_cast<ServiceClock::duration>(
                                 std::chrono::duration<double>(seconds));
  };
  deadlines_.erase({request.deadline, request.id});
  request.deadline = kNever;
  if (const double allowed = seconds_allowed(request); allowed > 0)
    request.deadline = after(allowed);
  if (const double wait = ledger_.limits().waiting_seconds; request.waiting && wait >= 0)
    request.deadline = std::min(request.deadline, after(wait));
  if (request.deadline != kNever) deadlines_.emplace(request.deadline, request.id);
}

RequestTable::Time RequestTable::next_deadline() const {
  std::lock_guard lock(mutex_);
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

std::optional<RequestTable::Expired> RequestTable::remove_expired(Time now) {
  std::lock_guard lock(mutex_);
  if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
  Expired expired{.removed = take(deadlines_.begin()->second), .end = {}};
  const OpenRequest& request = *expired.removed.request;
  expired.end = end_of(request, seconds(now - request.arrived), now);
  return expired;
}

Reply RequestTable::end_of(const OpenRequest& request, double waited, Time now) {
  Reply end;
  end.finish = Finish::kExhausted;
  end.usage = request.usage;
  const double allowed = seconds_allowed(request);
  if (allowed > 0 && waited >= allowed) {
    end.refusal = Refusal::kTimeout;
    end.why = fmt::format(
        "the request was not done within its timeout of {} s; {} tokens were "
        "generated",
        allowed, request.usage.completion);
    return end;
  }
  end.refusal = Refusal::kWaitingTime;
  end.retry_seconds = ledger_.retry_seconds(now);
  end.why = fmt::format(
      "the request waited {} s, the most it may, without getting a place; {} "
      "others with {} prompt tokens wait",
      ledger_.limits().waiting_seconds, ledger_.waiting(), ledger_.waiting_tokens());
  return end;
}

std::vector<RequestTable::Removed> RequestTable::remove_named(bool all, AbortNames names) {
  std::lock_guard lock(mutex_);
  std::vector<RequestId> meant, others;
  for (const auto& [id, request] : requests_) {
    const SharedTag& tag = request->prepared.tag;
    (all || (tag && names.has(tag->id)) ? meant : others).push_back(id);
  }
  for (const RequestId id : others) {
    const Prepared& prepared = requests_.at(id)->prepared;
    if (prepared.tag && names.has_child(prepared.tag->id, prepared.n)) meant.push_back(id);
  }
  std::vector<Removed> removed;
  removed.reserve(meant.size());
  for (const RequestId id : meant) removed.push_back(take(id));
  return removed;
}

void RequestTable::set_paused(std::string why) {
  std::lock_guard lock(mutex_);
  paused_ = std::move(why);
}

bool RequestTable::paused() const {
  std::lock_guard lock(mutex_);
  return !paused_.empty();
}

std::string RequestTable::pause_reason() const {
  std::lock_guard lock(mutex_);
  return paused_;
}

bool RequestTable::empty() const {
  std::lock_guard lock(mutex_);
  return requests_.empty();
}

std::optional<std::vector<RequestId>> RequestTable::stop() {
  std::lock_guard lock(mutex_);
  if (std::exchange(stopped_, true)) return std::nullopt;
  std::vector<RequestId> open;
  open.reserve(requests_.size());
  for (const auto& [id, request] : requests_) open.push_back(id);
  return open;
}

bool RequestTable::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

std::optional<Overload> RequestTable::overload(std::span<const Prepared> prompts) {
  int64_t tokens = 0;
  for (const Prepared& prepared : prompts)
    tokens += int64_t{prepared.n} * static_cast<int64_t>(prepared.prompt.size());
  std::lock_guard lock(mutex_);
  if (ledger_.has_room(std::max<int64_t>(tokens, 1))) return std::nullopt;
  const auto waiting =
      fmt::format("Too many requests wait: they have {} prompt tokens", ledger_.waiting_tokens());
  const int64_t bound = ledger_.limits().waiting_tokens;
  return Overload{.why = prompts.empty()
                             ? fmt::format("{}, not below the bound of {}", waiting, bound)
                             : fmt::format("{}; with the {} of this one that is more than the "
                                           "bound of {}",
                                           waiting, tokens, bound),
                  .retry_seconds = ledger_.retry_seconds(ServiceClock::now())};
}

bool RequestTable::queue_full() const {
  std::lock_guard lock(mutex_);
  return ledger_.is_full();
}

int RequestTable::retry_seconds() {
  std::lock_guard lock(mutex_);
  return ledger_.retry_seconds(ServiceClock::now());
}

int64_t RequestTable::waiting_tokens() const {
  std::lock_guard lock(mutex_);
  return ledger_.waiting_tokens();
}

}  // namespace skiff::service
