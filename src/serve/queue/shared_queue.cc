#include "serve/queue/shared_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/queue.h"
#include "serve/http/api_error.h"
#include "serve/queue/own_requests.h"
#include "serve/queue/taken_requests.h"

namespace skiff::queue {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Job = std::function<void()>;

constexpr int kWorkers = 2;
constexpr char kStopping[] = "the server is shutting down";
// How often an instance without room looks whether it has some.
constexpr Seconds kRoomPeriod{0.01};
// After a lost connection: the first and the longest wait between two tries.
constexpr double kFirstWait = 0.1, kLongestWait = 5;
// A connection that is lost within this time is not made again at once.
constexpr Seconds kShortLife{1};

// Whatever the handler throws ends this request alone.
void call(const http::HttpHandler& handler, http::HttpRequest request,
          const std::shared_ptr<http::HttpReply>& reply) noexcept {
  try {
    handler(std::move(request), reply);
  } catch (const std::exception& e) {
    spdlog::error("a request handler threw: {}", escaped(e.what()));
    reply->send(http::error_response(http::api_error(500, "internal error")));
  }
}

// Counts a request whose handler has not returned: until then nobody else counts it.
class Starting {
 public:
  explicit Starting(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Starting() { --count_; }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  std::atomic<int>& count_;
};

// Answers that cannot be heard are in vain, so the store is then as good as lost.
Status no_inbox() {
  return Error{Code::kExhausted, "the shared queue: its messages cannot be read"};
}

void compute_here(OwnRequest own) {
  const auto shared = std::make_shared<OwnRequest>(std::move(own));
  shared->reply->on_worker(
      [shared] { call(*shared->handler, std::move(shared->request), shared->reply); });
}

}  // namespace

struct SharedQueue::Impl : std::enable_shared_from_this<SharedQueue::Impl> {
  Impl(QueueConfig given, std::unique_ptr<Store> given_store, QueueHooks given_hooks)
      : config(std::move(given)),
        store(std::move(given_store)),
        hooks(std::move(given_hooks)),
        own(config.store.instance) {}

  void wake() {
    {
      std::lock_guard lock(mutex);
      woken = true;
    }
    changed.notify_one();
  }
  int load() const { return hooks.capacity().load + static_cast<int>(own.waiting()); }
  int room() const;
  bool wants() const;
  void arrive(const std::shared_ptr<const http::HttpHandler>& handler, http::HttpRequest request,
              std::shared_ptr<http::HttpReply> reply);
  const http::HttpHandler* handler_of(const http::HttpRequest& request) const;
  void begin(const Taken& found);
  void fall_back(bool held);

  // The thread that talks to the store.
  void exchange_until_stopped();
  bool connected();
  void lost(const Error& why);
  Status round();
  Status tell();
  Status send_pieces();
  Status tick();
  Status take_all();
  void wait(Seconds longest);
  void pause(Seconds longest);
  // The thread that listens.
  void listen_until_stopped();
  void hear(const std::string& bytes);

  const QueueConfig config;
  const std::unique_ptr<Store> store;
  const QueueHooks hooks;
  std::vector<http::Route> routes;  // as they were; not changed after share()
  OwnRequests own;
  Queue<Job> jobs;
  std::shared_ptr<TakenRequests> taken;  // set right after the constructor
  std::atomic<bool> up{false}, draining{false}, stopping{false};
  std::atomic<bool> deaf{false};  // what others say cannot be heard now
  std::atomic<int> starting{0};   // requests whose handlers have not returned
  std::atomic<int64_t> put{0}, taken_total{0};

  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;  // guarded by mutex

  // The thread that talks to the store has these to itself.
  bool idle = false;  // the store knows that this instance has room
  Clock::time_point next_tick, lost_at, up_since;
  double next_wait = 0;
  bool said = false, gave_up = false;

  std::atomic<bool> rung{false};

  std::thread exchanger, listener;
  std::vector<std::thread> workers;
};

int SharedQueue::Impl::room() const {
  const Capacity capacity = hooks.capacity();
  return capacity.serves && !draining ? capacity.room - starting : 0;
}

// Returns whether a request that comes in now is put into the store. Those that wait there come
// first.
bool SharedQueue::Impl::wants() const {
  if (!up || draining) return false;
  const Capacity capacity = hooks.capacity();
  const auto waiting = static_cast<int>(own.waiting());
  if (!capacity.serves || (config.max_waiting >= 0 && waiting >= config.max_waiting)) return false;
  return waiting > 0 || capacity.room - starting <= 0;
}

void SharedQueue::Impl::arrive(const std::shared_ptr<const http::HttpHandler>& handler,
                               http::HttpRequest request, std::shared_ptr<http::HttpReply> reply) {
  if (!wants()) {
    const Starting counted(starting);
    return (*handler)(std::move(request), std::move(reply));
  }
  std::string cache_part = hooks.cache_part(request);
  ++put;
  own.add({.request = std::move(request),
           .handler = handler,
           .reply = std::move(reply),
           .cache_part = std::move(cache_part)},
          Clock::now(), [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->wake();
          });
  wake();
}

const http::HttpHandler* SharedQueue::Impl::handler_of(const http::HttpRequest& request) const {
  for (const http::Route& route : routes)
    if (route.refuse_when_full && route.method == request.method && route.path == request.path)
      return &route.handler;
  return nullptr;
}

void SharedQueue::Impl::begin(const Taken& found) {
  ++taken_total;
  const std::shared_ptr<http::HttpReply> reply = taken->begin(found.lease);
  auto request = read_request(found.request, config.max_body);
  if (!request) {
    spdlog::warn("{}", escaped(request.error().what));
    return reply->send(http::error_response(http::api_error(502, request.error().what)));
  }
  const http::HttpHandler* handler = handler_of(*request);
  if (!handler)
    return reply->send(http::error_response(
        http::api_error(502, "the instance that took the request has no such route")));
  ++starting;
  const auto shared = std::make_shared<http::HttpRequest>(std::move(*request));
  jobs.push([this, handler, shared, reply] {
    call(*handler, std::move(*shared), reply);
    --starting;
  });
}

void SharedQueue::Impl::fall_back(bool held) {
  for (OwnRequest& request : own.release_all(held)) compute_here(std::move(request));
}

void SharedQueue::Impl::wait(Seconds longest) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, longest, [this] { return woken || stopping; });
  woken = false;
}

// Waits as wait() does, but what waits for the store does not end it: the store cannot be had.
void SharedQueue::Impl::pause(Seconds longest) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, longest,
                   [this, was_deaf = deaf.load()] { return stopping || (was_deaf && !deaf); });
}

void SharedQueue::Impl::exchange_until_stopped() {
  next_tick = lost_at = Clock::now();
  while (!stopping) {
    if (!up && !connected()) {
      pause(Seconds(next_wait));
      continue;
    }
    if (const Status done = round(); !done) {
      lost(done.error());
      continue;
    }
    const Seconds until_tick = next_tick - Clock::now();
    wait(std::max(Seconds(0), idle ? until_tick : std::min(until_tick, kRoomPeriod)));
  }
  if (up && tell() && send_pieces()) (void)store->leave();
}

// The first try is made at once, so that a connection that was merely closed costs nothing.
bool SharedQueue::Impl::connected() {
  Status good = deaf ? no_inbox() : store->connect();
  if (good) {
    auto alive = store->beat(load(), {});
    if (!alive) good = alive.error();
  }
  const auto now = Clock::now();
  if (good) {
    spdlog::info("the shared queue at {} port {} is in use", config.store.host, config.store.port);
    up = true;
    up_since = now;
    said = gave_up = idle = false;
    next_tick = now;
    next_wait = 0;
    return true;
  }
  if (!std::exchange(said, true))
    spdlog::warn("{}: requests are served by this instance alone until it is back",
                 escaped(good.error().what));
  fall_back(/*held=*/false);
  // By now others may have called back what is computed here, and nothing comes of what they
  // compute.
  if (now - lost_at > Seconds(config.store.lease_seconds) && !std::exchange(gave_up, true)) {
    fall_back(/*held=*/true);
    taken->stop_all();
  }
  next_wait = std::clamp(2 * next_wait, kFirstWait, kLongestWait);
  return false;
}

// A store that takes a connection and then refuses to write (it is full, say) helps nobody.
void SharedQueue::Impl::lost(const Error& why) {
  spdlog::warn("the shared queue: {}", escaped(why.what));
  up = false;
  lost_at = Clock::now();
  if (lost_at - up_since > kShortLife) return;
  fall_back(/*held=*/false);
  pause(kShortLife);
}

Status SharedQueue::Impl::round() {
  if (deaf) return no_inbox();
  if (Status done = tell(); !done) return done;
  if (Status done = send_pieces(); !done) return done;
  if (Clock::now() >= next_tick)
    if (Status done = tick(); !done) return done;
  return take_all();
}

// What changed here: requests that came in, that ended, that were given back.
Status SharedQueue::Impl::tell() {
  if (const auto ids = own.to_drop(); !ids.empty()) {
    if (Status done = store->drop(ids); !done) return done;
    own.were_dropped(ids.size());
  }
  for (const auto& [id, bytes] : own.to_put()) {
    if (Status done = store->put(id, bytes, load()); !done) return done;
    own.was_put(id);
  }
  for (const Lease& lease : taken->to_give_back()) {
    if (Status done = store->give_back(lease); !done) return done;
    taken->were_given_back(1);
  }
  return ok();
}

// Sends what waits now. What comes meanwhile is for the next round: streams that never pause must
// not keep signs of life and new requests from the store.
Status SharedQueue::Impl::send_pieces() {
  for (size_t left = taken->unsent(); left > 0;) {
    const auto pieces = taken->outgoing();
    const auto sent = store->send(pieces);
    if (!sent) return sent.error();
    taken->were_sent(*sent);
    left -= std::min(left, pieces.size());
  }
  return ok();
}

Status SharedQueue::Impl::tick() {
  const auto now = Clock::now();
  next_tick =
      now + std::chrono::duration_cast<Clock::duration>(Seconds(config.store.lease_seconds / 5));
  idle = false;  // a note that rings may have been lost
  const std::vector<Lease> held = taken->held();
  const auto alive = store->beat(load(), held);
  if (!alive) return alive.error();
  for (size_t i = 0; i < held.size(); ++i)
    if (!(*alive)[i]) taken->stop(held[i]);
  own.expire(now, config.store.request_seconds);
  const std::vector<std::string> ids = own.in_store();
  if (ids.empty()) return ok();
  auto seen = store->look(ids);
  if (!seen) return seen.error();
  // After a time without the store others need one to renew their leases.
  if (now - up_since < Seconds(config.store.lease_seconds))
    for (Seen& one : *seen)
      if (one.standing == Seen::Standing::kExpired) one.standing = Seen::Standing::kHeld;
  for (const Lease& lease : own.saw(ids, *seen)) {
    const auto number = store->call_back(lease);
    if (!number) return number.error();
    if (*number > 0) own.was_called_back(lease, *number);
  }
  return ok();
}

Status SharedQueue::Impl::take_all() {
  if (rung.exchange(false)) idle = false;
  while (!idle && !stopping && room() > 0) {
    auto found = store->take();
    if (!found) return found.error();
    if (!*found) {
      idle = true;
    } else if ((*found)->lease.number > 0) {
      begin(**found);
    } else if (auto request = own.release((*found)->lease.id)) {
      ++starting;
      const auto shared = std::make_shared<OwnRequest>(std::move(*request));
      jobs.push([this, shared] {
        call(*shared->handler, std::move(shared->request), shared->reply);
        --starting;
      });
    }
  }
  if (room() <= 0) idle = false;
  return ok();
}

void SharedQueue::Impl::listen_until_stopped() {
  double silence = 0;
  while (!stopping) {
    const auto messages = store->receive();
    if (!messages) {
      if (!deaf.exchange(true))
        spdlog::warn("the shared queue: {}", escaped(messages.error().what));
      silence = std::clamp(2 * silence, kFirstWait, kLongestWait);
      for (double slept = 0; slept < silence && !stopping; slept += kFirstWait)
        std::this_thread::sleep_for(Seconds(kFirstWait));
      continue;
    }
    silence = 0;
    for (const std::string& bytes : *messages) hear(bytes);
    if (deaf.exchange(false)) wake();
  }
}

void SharedQueue::Impl::hear(const std::string& bytes) {
  auto message = read_message(bytes);
  if (!message) return spdlog::warn("{}", escaped(message.error().what));
  if (auto* piece = std::get_if<Piece>(&*message)) return own.hear(std::move(*piece));
  const Note& note = std::get<Note>(*message);
  switch (note.kind) {
    case Note::Kind::kRing:
      rung = true;
      return wake();
    case Note::Kind::kStop:
      return taken->stop(note.lease);
    case Note::Kind::kTaken:
    case Note::Kind::kBack:
      return own.hear(note);
  }
}

SharedQueue::SharedQueue(QueueConfig config, std::unique_ptr<Store> store, QueueHooks hooks)
    : impl_(std::make_shared<Impl>(std::move(config), std::move(store), std::move(hooks))) {
  // Replies that handlers still hold may outlive this.
  const std::weak_ptr<Impl> weak = impl_;
  impl_->taken = std::make_shared<TakenRequests>(
      [weak] {
        if (const auto impl = weak.lock()) impl->wake();
      },
      [weak](Job job) {
        if (const auto impl = weak.lock()) impl->jobs.push(std::move(job));
      });
}

SharedQueue::~SharedQueue() { stop(); }

std::vector<http::Route> SharedQueue::share(std::vector<http::Route> routes) {
  impl_->routes = routes;
  for (http::Route& route : routes) {
    if (!route.refuse_when_full) continue;
    const auto handler = std::make_shared<const http::HttpHandler>(std::move(route.handler));
    route.handler = [impl = impl_, handler](http::HttpRequest request,
                                            std::shared_ptr<http::HttpReply> reply) {
      impl->arrive(handler, std::move(request), std::move(reply));
    };
    route.refuse_when_full = [impl = impl_, refuse = std::move(route.refuse_when_full)] {
      return impl->wants() ? std::nullopt : refuse();
    };
  }
  return routes;
}

void SharedQueue::start() {
  impl_->exchanger = std::thread([impl = impl_.get()] { impl->exchange_until_stopped(); });
  impl_->listener = std::thread([impl = impl_.get()] { impl->listen_until_stopped(); });
  for (int i = 0; i < kWorkers; ++i)
    impl_->workers.emplace_back([impl = impl_.get()] {
      while (auto job = impl->jobs.pop()) (*job)();
    });
}

void SharedQueue::begin_drain() {
  if (impl_->draining.exchange(true)) return;
  impl_->own.cut_off(kStopping, /*held=*/false);
  impl_->wake();
}

int SharedQueue::open() const { return static_cast<int>(impl_->taken->size()) + impl_->starting; }

void SharedQueue::fail() { impl_->taken->fail(); }

int SharedQueue::unsent() const { return static_cast<int>(impl_->taken->unsent()); }

void SharedQueue::cut_off() { impl_->own.cut_off(kStopping, /*held=*/true); }

void SharedQueue::stop() {
  if (impl_->stopping.exchange(true)) return;
  impl_->draining = true;
  impl_->wake();
  impl_->jobs.close();
  if (impl_->exchanger.joinable()) impl_->exchanger.join();
  if (impl_->listener.joinable()) impl_->listener.join();
  for (std::thread& worker : impl_->workers) worker.join();
  impl_->taken->stop_all();
}

std::string SharedQueue::metrics() const {
  const OwnRequests::Counts counts = impl_->own.counts();
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    text += fmt::format(
        "# HELP fastdeploy:shared_queue_{0} {2}\n# TYPE fastdeploy:shared_queue_{0} "
        "{1}\nfastdeploy:shared_queue_{0} {3}\n",
        name, type, help, value);
  };
  add("connected", "gauge", "Whether the store of the shared queue is in use", impl_->up ? 1 : 0);
  add("waiting", "gauge", "Requests of this instance that nobody computes yet",
      static_cast<int64_t>(impl_->own.waiting()));
  add("held", "gauge", "Requests of other instances that are computed here",
      static_cast<int64_t>(impl_->taken->size()));
  add("put_total", "counter", "Requests that found no room here and were put", impl_->put);
  add("taken_total", "counter", "Requests of other instances that were taken", impl_->taken_total);
  add("answered_total", "counter", "Requests that other instances have computed", counts.answered);
  add("came_back_total", "counter", "Requests put again after their instance was lost",
      counts.came_back);
  add("broken_total", "counter", "Answers that ended with an error in the queue", counts.broken);
  return text;
}

}  // namespace skiff::queue
