#include "serve/queue/taken_requests.h"

#include <algorithm>
#include <utility>

#include "serve/http/api_error.h"

namespace skiff::queue {
namespace {

// One script in Redis sends no more than about this many bytes and this many pieces.
constexpr size_t kMaxBatch = 8u << 20, kMaxPieces = 512;

// Returns whether another instance may answer otherwise. A refusal that forbids another try, as
// that of a request which an operator has ended, is the answer.
bool may_go_elsewhere(const http::HttpResponse& response) {
  const bool full = response.status == 429 || response.status == 503;
  return full && std::ranges::none_of(response.headers, [](const auto& header) {
           return header.first == "x-should-retry" && header.second == "false";
         });
}

// What the handler answers goes to the instance at which the request came in.
class RemoteReply : public http::HttpReply {
 public:
  RemoteReply(std::shared_ptr<TakenRequests> owner, Lease lease)
      : owner_(std::move(owner)), lease_(std::move(lease)) {}
  ~RemoteReply() override { owner_->abandon(lease_); }
  void send(http::HttpResponse response) override { owner_->answer(lease_, response); }
  void begin_stream(http::HttpResponse head) override { owner_->open(lease_, head); }
  bool write(std::string part) override { return owner_->append(lease_, part, /*ends=*/false); }
  void end_stream() override { owner_->append(lease_, "", /*ends=*/true); }
  // No handler of a generation paces itself by this: TakenRequests::kMaxUnsent bounds what waits.
  void when_sent(std::function<void()> sent) override { owner_->work(std::move(sent)); }
  void on_close(std::function<void()> closed) override {
    owner_->on_close(lease_, std::move(closed));
  }
  void on_worker(std::function<void()> job) override { owner_->work(std::move(job)); }

 private:
  const std::shared_ptr<TakenRequests> owner_;
  const Lease lease_;
};

}  // namespace

TakenRequests::Held* TakenRequests::find(const Lease& lease) {
  const auto found = held_.find(lease.id);
  return found != held_.end() && found->second.lease == lease ? &found->second : nullptr;
}

std::shared_ptr<http::HttpReply> TakenRequests::begin(const Lease& lease) {
  stop(lease);  // a lease of an earlier number, which has ended
  {
    std::lock_guard lock(mutex_);
    held_[lease.id] = Held{.lease = lease, .closed = nullptr};
  }
  return std::make_shared<RemoteReply>(shared_from_this(), lease);
}

size_t TakenRequests::size() const {
  std::lock_guard lock(mutex_);
  return held_.size() + give_back_.size();
}

std::vector<Lease> TakenRequests::held() const {
  std::vector<Lease> leases;
  std::lock_guard lock(mutex_);
  leases.reserve(held_.size());
  for (const auto& [id, held] : held_) leases.push_back(held.lease);
  return leases;
}

size_t TakenRequests::unsent() const {
  std::lock_guard lock(mutex_);
  return pieces_.size();
}

std::vector<Outgoing> TakenRequests::outgoing() const {
  std::vector<Outgoing> batch;
  size_t bytes = 0;
  std::lock_guard lock(mutex_);
  for (const Waiting& waiting : pieces_) {
    if (batch.size() == kMaxPieces || bytes > kMaxBatch) break;
    bytes += waiting.bytes;
    batch.push_back(waiting.outgoing);
  }
  return batch;
}

void TakenRequests::were_sent(const std::vector<bool>& sent) {
  std::vector<std::function<void()>> closed;
  {
    std::lock_guard lock(mutex_);
    for (const bool good : sent) {
      const Waiting first = std::move(pieces_.front());
      pieces_.pop_front();
      Held* held = find(first.outgoing.lease);
      if (held) held->unsent -= first.bytes;
      if (held && good && first.outgoing.last) held_.erase(first.outgoing.lease.id);
      if (held && !good) closed.push_back(forget(first.outgoing.lease));
    }
  }
  for (const auto& call : closed)
    if (call) call();
}

std::vector<Lease> TakenRequests::to_give_back() const {
  std::lock_guard lock(mutex_);
  return give_back_;
}

void TakenRequests::were_given_back(size_t count) {
  std::lock_guard lock(mutex_);
  give_back_.erase(give_back_.begin(), give_back_.begin() + static_cast<std::ptrdiff_t>(count));
}

std::function<void()> TakenRequests::forget(const Lease& lease) {
  const auto found = held_.find(lease.id);
  std::function<void()> closed = std::move(found->second.closed);
  const bool ended = found->second.ended;
  held_.erase(found);
  return ended ? nullptr : std::move(closed);
}

// The number may be that of a later lease: then all of an earlier one end.
void TakenRequests::stop(const Lease& lease) {
  std::function<void()> closed;
  {
    std::lock_guard lock(mutex_);
    const auto found = held_.find(lease.id);
    if (found == held_.end() || found->second.lease.number > lease.number) return;
    closed = forget(lease);
  }
  if (closed) closed();
}

void TakenRequests::stop_all() {
  for (const Lease& lease : held()) stop(lease);
  std::lock_guard lock(mutex_);
  give_back_.clear();  // their leases end by themselves
}

void TakenRequests::fail() {
  std::lock_guard lock(mutex_);
  failed_ = true;
}

void TakenRequests::add(Held& held, Piece piece) {
  piece.lease = held.lease;
  piece.index = held.next++;
  const size_t bytes = piece.bytes.size();
  held.unsent += bytes;
  held.ended = piece.ends;
  pieces_.push_back(
      {.outgoing = {.lease = held.lease, .piece = write_piece(piece), .last = piece.ends},
       .bytes = bytes});
}

void TakenRequests::add_all(Held& held, const http::HttpResponse* head, bool streams,
                            std::string_view bytes, bool ends) {
  do {
    const std::string_view part = bytes.substr(0, kMaxPiece);
    bytes.remove_prefix(part.size());
    Piece piece;
    piece.begins = head != nullptr;
    piece.streams = head != nullptr && streams;
    piece.ends = ends && bytes.empty();
    piece.bytes = part;
    if (head)
      piece.head = {.status = head->status,
                    .body = "",
                    .content_type = head->content_type,
                    .headers = head->headers};
    head = nullptr;
    add(held, std::move(piece));
  } while (!bytes.empty());
}

void TakenRequests::answer(const Lease& lease, const http::HttpResponse& response) {
  {
    std::lock_guard lock(mutex_);
    Held* held = find(lease);
    if (!held || held->next > 0 || failed_) return;
    if (may_go_elsewhere(response) && lease.number < kMaxLeases) {
      held_.erase(lease.id);
      give_back_.push_back(lease);
    } else {
      add_all(*held, &response, /*streams=*/false, response.body, /*ends=*/true);
    }
  }
  wake_();
}

void TakenRequests::open(const Lease& lease, const http::HttpResponse& head) {
  {
    std::lock_guard lock(mutex_);
    Held* held = find(lease);
    if (!held || held->next > 0) return;
    add_all(*held, &head, /*streams=*/true, head.body, /*ends=*/false);
  }
  wake_();
}

bool TakenRequests::append(const Lease& lease, std::string_view bytes, bool ends) {
  std::function<void()> closed;
  {
    std::lock_guard lock(mutex_);
    Held* held = find(lease);
    if (!held || held->next == 0 || held->ended) return false;
    if (bytes.empty() && !ends) return true;
    const bool fits = held->unsent + bytes.size() <= kMaxUnsent;
    if (fits) {
      add_all(*held, nullptr, /*streams=*/true, bytes, ends);
    } else {
      closed = forget(lease);
      if (!closed) return false;
    }
  }
  // On another thread: the caller may hold what `closed` needs.
  if (closed) {
    work_(std::move(closed));
    return false;
  }
  wake_();
  return true;
}

void TakenRequests::on_close(const Lease& lease, std::function<void()> closed) {
  {
    std::lock_guard lock(mutex_);
    if (Held* held = find(lease)) {
      held->closed = std::move(closed);
      return;
    }
  }
  closed();
}

// The handler dropped its reply.
void TakenRequests::abandon(const Lease& lease) {
  std::unique_lock lock(mutex_);
  Held* held = find(lease);
  if (!held || held->ended) return;
  if (held->next > 0) return void(forget(lease));  // the stream breaks off when its lease ends
  lock.unlock();
  answer(lease, http::error_response(http::api_error(500, "the request was not answered")));
}

}  // namespace skiff::queue
