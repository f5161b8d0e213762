// serve/queue/taken_requests.h -- the requests of other instances that this one computes, and the
// pieces of their answers that are on their way.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/server.h"
#include "serve/queue/store.h"

namespace skiff::queue {

// Thread-safe.
class TakenRequests : public std::enable_shared_from_this<TakenRequests> {
 public:
  // A stream of which more bytes than this wait for the store ends.
  static constexpr size_t kMaxUnsent = 4u << 20;
  // A refusal (429, 503) of a lease with a smaller number gives the request back, unless it says
  // that another try is in vain.
  static constexpr int64_t kMaxLeases = 4;

  // `wake` is called when there is something for the store; `work` runs a job on a worker.
  TakenRequests(std::function<void()> wake, std::function<void(std::function<void()>)> work)
      : wake_(std::move(wake)), work_(std::move(work)) {}

  // Begins with a request; its answer goes into the reply.
  std::shared_ptr<http::HttpReply> begin(const Lease& lease);
  size_t size() const;
  std::vector<Lease> held() const;
  // How many pieces wait for the store; as many of them as may be sent at once; then what became of
  // the first `sent.size()` pieces.
  size_t unsent() const;
  std::vector<Outgoing> outgoing() const;
  void were_sent(const std::vector<bool>& sent);
  std::vector<Lease> to_give_back() const;
  void were_given_back(size_t count);
  // The lease has ended: nobody awaits the answer.
  void stop(const Lease& lease);
  void stop_all();
  // The engine has failed: a request whose answer has not begun gets none from now on, and keeps
  // its lease until this process ends. So it counts as one of an instance that is lost.
  void fail();

  // For the reply.
  void answer(const Lease& lease, const http::HttpResponse& response);
  void open(const Lease& lease, const http::HttpResponse& head);
  bool append(const Lease& lease, std::string_view bytes, bool ends);
  void on_close(const Lease& lease, std::function<void()> closed);
  void abandon(const Lease& lease);
  void work(std::function<void()> job) { work_(std::move(job)); }

 private:
  struct Held {
    Lease lease;
    uint32_t next = 0;
    size_t unsent = 0;  // bytes in pieces_
    bool ended = false;
    std::function<void()> closed;
  };
  struct Waiting {
    Outgoing outgoing;
    size_t bytes = 0;
  };
  // These require mutex_.
  Held* find(const Lease& lease);
  void add(Held& held, Piece piece);
  void add_all(Held& held, const http::HttpResponse* head, bool streams, std::string_view bytes,
               bool ends);
  // Forgets the lease; returns what is to be called then, without the mutex.
  std::function<void()> forget(const Lease& lease);

  const std::function<void()> wake_;
  const std::function<void(std::function<void()>)> work_;
  mutable std::mutex mutex_;
  std::map<std::string, Held> held_;  // by id; guarded by mutex_, as are the rest
  std::deque<Waiting> pieces_;
  std::vector<Lease> give_back_;
  bool failed_ = false;
};

}  // namespace skiff::queue
