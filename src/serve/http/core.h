// serve/http/core.h -- what all connections of a server share. Private to the HTTP server.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "serve/http/body_count.h"
#include "serve/http/connection_table.h"
#include "serve/http/date.h"
#include "serve/http/held.h"
#include "serve/http/server.h"
#include "serve/http/stream.h"

namespace skiff::http {

// Outlives the connections: each holds a reference.
struct HttpCore {
  HttpCore(HttpConfig config, HttpHooks hooks)
      : config(std::move(config)),
        hooks(std::move(hooks)),
        workers(static_cast<size_t>(this->config.worker_threads)),
        aside(static_cast<size_t>(this->config.worker_threads + 1) / 2),
        connections(this->config.max_connections, this->config.max_probe_connections),
        held(this->config.max_held) {}

  std::shared_ptr<net::ssl::context> tls_now() const {
    std::lock_guard lock(mutex);
    return tls;
  }
  net::thread_pool& threads_of(HttpLane lane) {
    if (lane == HttpLane::kLarge) return large;
    if (lane == HttpLane::kAside) return aside;
    return lane == HttpLane::kQuick ? quick : workers;
  }
  // A job posted after the threads have been joined would keep this alive forever, so it is
  // dropped.
  void work(std::function<void()> job, HttpLane lane = HttpLane::kWork) {
    std::lock_guard lock(mutex);
    if (!stopped) net::post(threads_of(lane), std::move(job));
  }

  // Has a strand of `io` do a job of a connection, which the job holds and which holds this. So it
  // is dropped once end_io() has run, like a job for the workers.
  template <class Executor, class Job>
  void post(const Executor& strand, Job job) {
    std::lock_guard lock(mutex);
    if (!io_ended) net::post(strand, std::move(job));
  }
  // Joins the threads that run `io`, and does what was posted while they ended.
  void end_io(std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
    {
      std::lock_guard lock(mutex);
      io_ended = true;
    }
    io.restart();
    io.run();
  }

  const HttpConfig config;
  const HttpHooks hooks;
  net::io_context io;
  net::thread_pool workers, aside, quick{1}, large{1};
  ConnectionTable connections;
  HttpClock clock;
  HeldReplies held;
  bool stopped = false;   // guarded by mutex; no more jobs for the workers
  bool io_ended = false;  // guarded by mutex; no more jobs for the I/O threads
  std::atomic<int> open_requests{0};
  std::atomic<uint64_t> requests{0};  // heads read since start
  const std::shared_ptr<BodyCount::Sum> body_bytes = std::make_shared<BodyCount::Sum>(0);
  std::atomic<bool> draining{false};
  std::atomic<bool> closing{false};  // stop() has been called: no connection stays
  mutable std::mutex mutex;
  std::shared_ptr<net::ssl::context> tls;  // guarded by mutex; null without TLS
};

}  // namespace skiff::http
