// capi/outbox.h -- the pieces of replies between the service's output thread and whoever collects
// them. Pieces of one sequence that nobody has collected yet are merged, so it holds at most one of
// each sequence under way.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capi/call.h"
#include "capi/notice.h"
#include "capi/outcome.h"
#include "serve/service/service.h"

namespace skiff::capi {

// What has come of one sequence since the last piece of it.
struct Piece {
  std::shared_ptr<Call> call;
  service::Reply reply;    // with Finish::kExhausted or kCancelled: why this sequence failed
  double first_token = 0;  // Unix seconds; 0: there is no token yet
  bool last = false;       // no other piece of the request follows
};

// Thread-safe.
class Outbox {
 public:
  // Readable while take() would give something, or the outbox is closed.
  const Notice& notice() const { return notice_; }

  // Before the request starts. SKIFF_CLOSED after close().
  Outcome open(std::shared_ptr<Call> call);
  // When it has started. True if it is to be cancelled: it was dropped, or has failed as a whole.
  bool started(uint64_t id, service::RequestId request);
  // On the output thread. A sequence that fails (kExhausted) leaves the others as they are. One
  // that could not be replied to (kCancelled) ends all that have not ended yet, and gives the
  // request, which is to be cancelled.
  std::optional<service::RequestId> put(uint64_t id, service::Reply reply);
  // Nothing of it is given any more. Gives the request that is to be cancelled, if it runs.
  std::optional<service::RequestId> drop(uint64_t id);
  // Nothing of any request is given any more. Gives the requests that are to be cancelled.
  std::vector<service::RequestId> drop_all();
  // No request that runs will go on; `why` is what take() says when all is collected.
  void close(Outcome why);

  // All that is ready, up to some megabytes; at most one piece of each sequence.
  Outcome take(std::vector<Piece>* pieces);

 private:
  struct Gathered {
    service::Reply reply;
    double first_token = 0;
    bool ready = false, ended = false;
  };
  struct Entry {
    std::shared_ptr<Call> call;
    std::optional<service::RequestId> request;
    std::vector<Gathered> sequences;
    int collected = 0;    // sequences whose end was given
    bool failed = false;  // as a whole
  };
  using Entries = std::unordered_map<uint64_t, Entry>;

  // With mutex_ held.
  void gather(uint64_t id, Entry& entry, service::Reply reply);
  void end_others(uint64_t id, Entry& entry, const service::Reply& failure);
  void make_ready(uint64_t id, size_t index, Gathered& gathered);
  Piece give(Entries::iterator found, size_t index);

  const Notice notice_;
  std::mutex mutex_;  // guards the rest
  Entries entries_;
  std::deque<std::pair<uint64_t, size_t>> ready_;  // id and index; may name what was dropped
  Outcome closed_;
};

}  // namespace skiff::capi
