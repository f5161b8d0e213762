// serve/queue/own_requests.h -- the requests that came in at this instance and were put into the
// shared queue: who computes them, and how far their answers have come.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/http/server.h"
#include "serve/queue/store.h"

namespace skiff::queue {

// A request with what computes it here.
struct OwnRequest {
  http::HttpRequest request;
  std::shared_ptr<const http::HttpHandler> handler;
  std::shared_ptr<http::HttpReply> reply;
  std::string cache_part;  // see ApiKeys::cache_salt()
};

// The client gets the pieces of one lease, in order, each once: pieces of leases that have ended
// are dropped. A request whose instance is lost is put again once, if its client has got nothing of
// an answer yet; else its answer ends with an error. Thread-safe.
class OwnRequests {
 public:
  using Clock = std::chrono::steady_clock;
  // An answer that is not streamed is held here until it is whole.
  static constexpr size_t kMaxAnswer = 256u << 20;

  explicit OwnRequests(std::string instance) : instance_(std::move(instance)) {}

  // `wake` is called if the client leaves.
  void add(OwnRequest request, Clock::time_point now, std::function<void()> wake);
  // How many nobody computes yet; all.
  size_t waiting() const;
  size_t size() const;

  // Requests to be put into the store, as ids and bytes; then that one of them was put.
  std::vector<std::pair<std::string, std::string>> to_put() const;
  void was_put(const std::string& id);
  // Ids to be taken out of the store; then that this was done.
  std::vector<std::string> to_drop() const;
  void were_dropped(size_t count);
  // Ids of those that are in the store, and what it knows of them. Returns leases that are to be
  // called back.
  std::vector<std::string> in_store() const;
  std::vector<Lease> saw(const std::vector<std::string>& ids, const std::vector<Seen>& seen);
  // A lease was called back, and the next one has that number.
  void was_called_back(const Lease& lease, int64_t number);

  void hear(const Note& note);
  void hear(Piece piece);

  // Each of these returns requests that are to be computed here, and which the queue forgets: one
  // that this instance took; all that nobody computes; with `held` also those that another instance
  // computes and of which the client has nothing yet, while the others among these end with an
  // error.
  std::optional<OwnRequest> release(const std::string& id);
  std::vector<OwnRequest> release_all(bool held);
  // Ends those that came more than `seconds` ago and that nobody computes.
  void expire(Clock::time_point now, double seconds);
  // Ends all that nobody computes with an error; with `held` also the others.
  void cut_off(const std::string& why, bool held);

  // Since start: requests that other instances have computed; that came back from one that was
  // lost; whose answers ended with an error because of that.
  struct Counts {
    int64_t answered = 0, came_back = 0, broken = 0;
  };
  Counts counts() const;

 private:
  enum class State { kNew, kWaits, kHeld };  // kNew: not in the store yet
  struct Entry {
    OwnRequest request;
    std::string id;
    State state = State::kNew;
    Clock::time_point arrived;
    int64_t number = 0;    // the last lease's
    uint32_t next = 0;     // index of the next piece of it
    bool streams = false;  // the client has got something
    bool came_back = false;
    int gone = 0;  // how often in a row the store knew nothing of it
    http::HttpResponse response;
  };
  using Shared = std::shared_ptr<Entry>;

  // All of these require mutex_.
  void name(const Shared& entry);
  void forget(const Shared& entry);
  void lose(const Shared& entry);
  void refuse(const Shared& entry, int status, const std::string& why);
  void deliver(const Shared& entry, Piece piece);

  const std::string instance_;
  mutable std::mutex mutex_;
  uint64_t names_ = 0;                             // guarded by mutex_, as are the rest
  std::unordered_map<std::string, Shared> known_;  // by id
  std::vector<std::string> drops_;
  Counts counts_;
};

}  // namespace skiff::queue
