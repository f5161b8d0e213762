#include "serve/queue/own_requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/http/api_error.h"
#include "serve/http/broken_stream.h"

namespace skiff::queue {
namespace {

// The store forgets a request with the last piece of its answer, which may lie in the inbox still:
// so it counts as lost only if it is still awaited when the store is asked again.
constexpr int kGone = 2;

constexpr char kLost[] = "the instance that computed the request is gone";

}  // namespace

void OwnRequests::name(const Shared& entry) {
  entry->id = fmt::format("{}:{}", instance_, ++names_);
  entry->state = State::kNew;
  entry->number = 0;
  entry->next = 0;
  entry->gone = 0;
  entry->response = {};
  known_[entry->id] = entry;
}

void OwnRequests::forget(const Shared& entry) {
  if (entry->state != State::kNew) drops_.push_back(entry->id);
  known_.erase(entry->id);
}

void OwnRequests::add(OwnRequest request, Clock::time_point now, std::function<void()> wake) {
  const auto entry = std::make_shared<Entry>();
  entry->request = std::move(request);
  entry->arrived = now;
  const auto reply = entry->request.reply;
  {
    std::lock_guard lock(mutex_);
    name(entry);
  }
  // Outside of the lock: it is called at once if the client has left already.
  reply->on_close([this, weak = std::weak_ptr(entry), wake = std::move(wake)] {
    const auto left = weak.lock();
    if (!left) return;
    {
      std::lock_guard lock(mutex_);
      if (known_.contains(left->id)) forget(left);
    }
    wake();
  });
}

size_t OwnRequests::waiting() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      known_, [](const auto& known) { return known.second->state != State::kHeld; }));
}

size_t OwnRequests::size() const {
  std::lock_guard lock(mutex_);
  return known_.size();
}

std::vector<std::pair<std::string, std::string>> OwnRequests::to_put() const {
  std::vector<Shared> fresh;
  std::vector<std::pair<std::string, std::string>> requests;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : known_)
    if (entry->state == State::kNew) fresh.push_back(entry);
  std::ranges::sort(fresh, {}, &Entry::arrived);
  requests.reserve(fresh.size());
  for (const Shared& entry : fresh)
    requests.emplace_back(entry->id,
                          write_request(entry->request.request, entry->request.cache_part));
  return requests;
}

void OwnRequests::was_put(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end()) return drops_.push_back(id);  // the client has left meanwhile
  if (found->second->state == State::kNew) found->second->state = State::kWaits;
}

std::vector<std::string> OwnRequests::to_drop() const {
  std::lock_guard lock(mutex_);
  return drops_;
}

void OwnRequests::were_dropped(size_t count) {
  std::lock_guard lock(mutex_);
  drops_.erase(drops_.begin(), drops_.begin() + static_cast<std::ptrdiff_t>(count));
}

std::vector<std::string> OwnRequests::in_store() const {
  std::vector<std::string> ids;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : known_)
    if (entry->state != State::kNew) ids.push_back(id);
  return ids;
}

std::vector<Lease> OwnRequests::saw(const std::vector<std::string>& ids,
                                    const std::vector<Seen>& seen) {
  std::vector<Lease> expired;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = known_.find(ids[i]);
    if (found == known_.end()) continue;
    const Shared entry = found->second;
    entry->gone = seen[i].standing == Seen::Standing::kGone ? entry->gone + 1 : 0;
    if (entry->gone == kGone) {
      lose(entry);
    } else if (seen[i].standing == Seen::Standing::kExpired) {
      if (entry->streams || entry->came_back)
        lose(entry);
      else
        expired.push_back({ids[i], seen[i].number});
    }
  }
  return expired;
}

void OwnRequests::was_called_back(const Lease& lease, int64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(lease.id);
  if (found == known_.end()) return;
  const Shared entry = found->second;
  // Whoever took it since may have been heard already.
  const bool taken_again = entry->number > number;
  if (entry->streams && !taken_again) return lose(entry);  // the first piece has come meanwhile
  entry->came_back = true;
  ++counts_.came_back;
  if (taken_again) return;
  entry->state = State::kWaits;
  entry->number = number;
  entry->next = 0;
  entry->response = {};
}

// The store knows nothing of the request, or nobody computes it any more. One that nobody had begun
// with loses nothing, so it may be put again as often as that happens.
void OwnRequests::lose(const Shared& entry) {
  const bool begun = entry->state == State::kHeld;
  forget(entry);
  if (begun && (entry->streams || entry->came_back)) return refuse(entry, 502, kLost);
  if (begun) {
    entry->came_back = true;
    ++counts_.came_back;
  }
  name(entry);
}

// The request is known no longer.
void OwnRequests::refuse(const Shared& entry, int status, const std::string& why) {
  ++counts_.broken;
  http::HttpReply& reply = *entry->request.reply;
  if (!entry->streams) {
    http::ApiError error = http::api_error(status, why);
    return reply.send(http::error_response(status == 503 ? http::retry_later(error, 1) : error));
  }
  const std::string event =
      http::last_event(entry->request.request.path, entry->response.content_type, why);
  if (event.empty()) return entry->request.reply.reset();  // ends with its connection
  reply.write(event);
  reply.end_stream();
}

void OwnRequests::hear(const Note& note) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(note.lease.id);
  if (found == known_.end()) {
    if (note.kind == Note::Kind::kTaken) drops_.push_back(note.lease.id);
    return;
  }
  const Shared entry = found->second;
  const bool taken = note.kind == Note::Kind::kTaken;
  // A store that has come back with an older state hands a number out again, and the pieces of both
  // leases could not be told apart.
  const bool twice = taken && entry->state == State::kHeld && note.lease.number == entry->number;
  if (note.lease.number <= entry->number && !twice) return;  // it is about an older lease
  if (twice || entry->streams) return lose(entry);
  entry->number = note.lease.number;
  entry->next = 0;
  entry->state = taken ? State::kHeld : State::kWaits;
}

void OwnRequests::hear(Piece piece) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(piece.lease.id);
  if (found == known_.end()) {
    if (!piece.ends) drops_.push_back(piece.lease.id);
    return;
  }
  const Shared entry = found->second;
  if (entry->state != State::kHeld || piece.lease.number != entry->number) return;
  if (piece.index < entry->next) return;  // it was sent twice
  const bool whole = piece.index == entry->next && piece.begins == (entry->next == 0) &&
                     entry->response.body.size() + piece.bytes.size() <= kMaxAnswer;
  if (!whole) return lose(entry);
  ++entry->next;
  entry->gone = 0;
  deliver(entry, std::move(piece));
}

void OwnRequests::deliver(const Shared& entry, Piece piece) {
  http::HttpReply& reply = *entry->request.reply;
  if (piece.begins) entry->response = std::move(piece.head);
  if (piece.begins && piece.streams) {
    entry->streams = true;
    reply.begin_stream(entry->response);
  }
  if (!entry->streams)
    entry->response.body += piece.bytes;
  else if (!piece.bytes.empty())
    reply.write(std::move(piece.bytes));
  if (!piece.ends) return;
  known_.erase(entry->id);
  ++counts_.answered;
  if (entry->streams)
    reply.end_stream();
  else
    reply.send(std::move(entry->response));
}

std::optional<OwnRequest> OwnRequests::release(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end()) return std::nullopt;
  OwnRequest request = std::move(found->second->request);
  known_.erase(found);
  return request;
}

std::vector<OwnRequest> OwnRequests::release_all(bool held) {
  std::vector<Shared> entries;
  std::vector<OwnRequest> released;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : known_)
    if (held || entry->state != State::kHeld) entries.push_back(entry);
  std::ranges::sort(entries, {}, &Entry::arrived);
  for (const Shared& entry : entries) {
    forget(entry);
    if (entry->streams)
      refuse(entry, 502, kLost);
    else
      released.push_back(std::move(entry->request));
  }
  return released;
}

void OwnRequests::expire(Clock::time_point now, double seconds) {
  std::vector<Shared> late;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : known_)
    if (entry->state != State::kHeld &&
        now - entry->arrived > std::chrono::duration<double>(seconds))
      late.push_back(entry);
  for (const Shared& entry : late) {
    forget(entry);
    refuse(entry, 503,
           fmt::format("the request was not computed within {:.0f} s, which --scheduler-ttl "
                       "gives it in the shared queue",
                       seconds));
  }
}

void OwnRequests::cut_off(const std::string& why, bool held) {
  std::vector<Shared> ended;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : known_)
    if (held || entry->state != State::kHeld) ended.push_back(entry);
  for (const Shared& entry : ended) {
    forget(entry);
    refuse(entry, 503, why);
  }
}

OwnRequests::Counts OwnRequests::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace skiff::queue
