#include "capi/outbox.h"

#include "capi/unix_time.h"
#include "serve/openai/shape.h"

namespace skiff::capi {
namespace {

constexpr size_t kBatchBytes = 4 << 20;  // bytes after which take() returns no further event

size_t size_of(const std::vector<PositionLogprobs>& positions) {
  size_t count = 0;
  for (const PositionLogprobs& position : positions) count += 1 + position.top.size();
  return 64 * count;
}

size_t size_of(const std::vector<DraftLogprobs>& drafts) {
  size_t count = 0;
  for (const DraftLogprobs& one : drafts) count += 1 + one.logprobs.top.size();
  return 64 * count;
}

// Approximate bytes of its JSON.
size_t size_of(const service::Reply& reply) {
  return 256 + 2 * reply.text.size() + 8 * reply.tokens.size() + size_of(reply.logprobs) +
         size_of(reply.draft_logprobs) + size_of(reply.prompt_logprobs);
}

// Returns whether a piece of a sequence may be collected.
bool is_due(const openai::OpenAiCall& asked, const service::Reply& reply) {
  if (reply.finish != Finish::kNone) return true;
  return asked.stream && std::ssize(reply.tokens) >= asked.max_streaming_tokens;
}

void merge(service::Reply& whole, service::Reply piece) {
  whole.index = piece.index;
  whole.usage = piece.usage;
  whole.refusal = piece.refusal;
  whole.why = std::move(piece.why);
  whole.pooled = std::move(piece.pooled);
  openai::append(whole, std::move(piece));
}

}  // namespace

Outcome Outbox::open(std::shared_ptr<Call> call) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  const uint64_t id = call->id;
  Entry entry;
  entry.sequences.resize(static_cast<size_t>(call->asked.request.n));
  entry.call = std::move(call);
  entries_.emplace(id, std::move(entry));
  return {};
}

bool Outbox::started(uint64_t id, service::RequestId request) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return true;
  found->second.request = request;
  return found->second.failed;
}

std::optional<service::RequestId> Outbox::put(uint64_t id, service::Reply reply) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.failed) return std::nullopt;
  Entry& entry = found->second;
  entry.failed = reply.finish == Finish::kCancelled;
  if (entry.failed) end_others(id, entry, reply);
  gather(id, entry, std::move(reply));
  return entry.failed ? entry.request : std::nullopt;
}

void Outbox::gather(uint64_t id, Entry& entry, service::Reply reply) {
  const auto index = static_cast<size_t>(reply.index);
  Gathered& gathered = entry.sequences[index];
  gathered.ended |= reply.finish != Finish::kNone;
  if (gathered.first_token == 0 && !reply.tokens.empty()) gathered.first_token = unix_time();
  merge(gathered.reply, std::move(reply));
  if (is_due(entry.call->asked, gathered.reply)) make_ready(id, index, gathered);
}

void Outbox::end_others(uint64_t id, Entry& entry, const service::Reply& failure) {
  for (int i = 0; i < std::ssize(entry.sequences); ++i) {
    if (i == failure.index || entry.sequences[static_cast<size_t>(i)].ended) continue;
    service::Reply end;
    end.index = i;
    end.finish = failure.finish;
    end.why = failure.why;
    end.usage = failure.usage;
    gather(id, entry, std::move(end));
  }
}

void Outbox::make_ready(uint64_t id, size_t index, Gathered& gathered) {
  if (std::exchange(gathered.ready, true)) return;
  ready_.emplace_back(id, index);
  if (ready_.size() == 1) notice_.set();
}

std::optional<service::RequestId> Outbox::drop(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return std::nullopt;
  const auto request = found->second.request;
  entries_.erase(found);
  std::erase_if(ready_, [id](const auto& one) { return one.first == id; });
  if (ready_.empty() && closed_.ok()) notice_.clear();
  return request;
}

std::vector<service::RequestId> Outbox::drop_all() {
  std::lock_guard lock(mutex_);
  std::vector<service::RequestId> requests;
  for (const auto& [id, entry] : entries_)
    if (entry.request) requests.push_back(*entry.request);
  entries_.clear();
  ready_.clear();
  if (closed_.ok()) notice_.clear();
  return requests;
}

void Outbox::close(Outcome why) {
  std::lock_guard lock(mutex_);
  if (closed_.ok()) closed_ = std::move(why);
  notice_.set();
}

Outcome Outbox::take(std::vector<Piece>* pieces) {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  while (!ready_.empty() && bytes < kBatchBytes) {
    const auto [id, index] = ready_.front();
    ready_.pop_front();
    const auto found = entries_.find(id);
    if (found == entries_.end()) continue;
    pieces->push_back(give(found, index));
    bytes += size_of(pieces->back().reply);
  }
  if (!closed_.ok()) return pieces->empty() ? closed_ : Outcome{};
  if (ready_.empty()) notice_.clear();
  return {};
}

Piece Outbox::give(Entries::iterator found, size_t index) {
  Entry& entry = found->second;
  Gathered& gathered = entry.sequences[index];
  gathered.ready = false;
  Piece piece{.call = entry.call,
              .reply = std::exchange(gathered.reply, {}),
              .first_token = gathered.first_token};
  if (piece.reply.finish != Finish::kNone) ++entry.collected;
  piece.last = entry.collected == std::ssize(entry.sequences);
  if (piece.last) entries_.erase(found);
  return piece;
}

}  // namespace skiff::capi
