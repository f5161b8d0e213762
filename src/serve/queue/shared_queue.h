// serve/queue/shared_queue.h -- several instances of one model share their requests: what comes in
// where there is no room is put into a store that all of them see (Redis), and computed by
// whichever instance has room; the answer comes back through the store to where its client is.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/http/route_table.h"
#include "serve/queue/store.h"

namespace skiff::queue {

struct QueueConfig {
  StoreConfig store;
  int max_waiting = -1;  // requests of this instance that may wait in the store; -1: any number
  size_t max_body = 16u << 20;  // bytes of a request that is taken from another instance
  int max_running = 0;          // requests that this instance computes at a time
};

// What this instance has to do now.
struct Capacity {
  int load = 0;         // requests under way
  int room = 0;         // further ones that would begin at once
  bool serves = false;  // false while it is paused, ill, or going down
};

struct QueueHooks {
  std::function<Capacity()> capacity;  // quick; any thread
  // See ApiKeys::cache_salt().
  std::function<std::string(const http::HttpRequest&)> cache_part;
};

// While the store cannot be reached every instance serves what it gets, as if it were alone.
class SharedQueue {
 public:
  SharedQueue(QueueConfig config, std::unique_ptr<Store> store, QueueHooks hooks);
  ~SharedQueue();  // calls stop()

  // Returns the same routes, those that generate (which have refuse_when_full) with the queue
  // before their handlers. To be called once, before start().
  std::vector<http::Route> share(std::vector<http::Route> routes);
  void start();

  // Takes nothing more; requests of this instance that nobody computes yet end with a 503.
  void begin_drain();
  // Requests of others that are computed here.
  int open() const;
  // Ends the answers that other instances compute for this one with an error.
  void cut_off();
  // The engine has failed: whole answers of requests of others are not given from now on. Their
  // leases end with the process, and then another instance computes these requests.
  void fail();
  // Pieces of answers that the store has not got yet.
  int unsent() const;
  // Ends the threads. Idempotent.
  void stop();
  // Prometheus text format 0.0.4.
  std::string metrics() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace skiff::queue
