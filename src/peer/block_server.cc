#include "peer/block_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "base/load_error.h"
#include "base/log.h"
#include "peer/stream.h"

namespace skiff::peer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxStrangers = 16;  // connections that have not logged in
constexpr size_t kReadAtOnce = 256 << 10;
constexpr int kBlocksAtOnce = 4;  // sent to one connection before the others have their turn
constexpr auto kTick = std::chrono::milliseconds(200);
constexpr auto kBetweenWarnings = std::chrono::minutes(1);
constexpr auto kBetweenRefusals = std::chrono::seconds(10);
constexpr size_t kMaxReason = 400;  // bytes of a reason in the log

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Lease {
  std::vector<kv::BlockKey> keys;
  SeqId seq = 0;                          // the sequence that computes the prompt; 0: none does
  bool failed = false;                    // the prompt was not computed
  std::optional<Clock::time_point> done;  // when it was computed
};

struct Connection {
  explicit Connection(Fd fd) : stream(std::move(fd)) {}
  Stream stream;
  Digest nonce = random_nonce();
  bool welcome = false, closing = false, gone = false;
  Clock::time_point heard = Clock::now(), since = heard;
  std::unordered_map<uint64_t, Lease> leases;
  size_t keys = 0;                     // sum over all leases
  std::optional<Shelf::Loan> sending;  // the block whose bytes are being sent
  std::deque<Read> reads;              // those that may be answered
  std::vector<Read> waiting;           // those whose blocks are not there yet
};

// These two are what other threads tell the server.
struct Changed {
  kv::BlockKey key{};
  bool here = false;
};
struct Ended {
  SeqId id = 0;
  bool computed = false;
};

}  // namespace

struct BlockServer::Impl {
  Impl(Config c, std::shared_ptr<Shelf> s);
  ~Impl() {
    end();
    shelf->on_change(nullptr);
  }

  void end();
  void run();
  void wait();
  void take_notes();
  void accept_all();
  bool make_room();
  void accept_failed(int error);
  void serve(Connection& c, short events);
  void read_messages(Connection& c);
  void answer(Connection& c, Message& message);
  void greet(Connection& c, const Message& message);
  void refuse(Connection& c, const std::string& why);
  void say_refused(const Connection& c, const std::string& why);
  void open(Connection& c, Open& message);
  void start(Lease& lease, Open& message);
  void close(Connection& c, uint64_t lease);
  void read(Connection& c, const Read& message);
  bool send_block(Connection& c, const Read& read);
  void send_blocks(Connection& c);
  void miss(Connection& c, const Read& read, Loss why);
  void key_changed(const Changed& note);
  void prompt_ended(const Ended& note);
  void end_waits(Connection& c, Clock::time_point now);
  void drop(Connection& c);
  void publish();
  void tell(std::vector<std::variant<Changed, Ended>> notes);

  const Config config;
  const std::shared_ptr<Shelf> shelf;
  Fd listener;
  Wake wake;
  std::list<Connection> connections;  // the server thread's, like the members below
  std::vector<pollfd> polled;
  Clock::time_point accepts_from;                 // new connections wait until then
  std::optional<Clock::time_point> warned;        // when accept_failed() last did
  std::optional<Clock::time_point> said_refused;  // when say_refused() last wrote a line
  uint64_t unsaid = 0;                            // refusals since then
  SeqId next = kFirstSeq;
  uint64_t blocks = 0, prompts = 0;
  std::atomic<bool> stop = false, draining = false;
  mutable std::mutex mutex;  // guards the members below
  std::vector<std::variant<Changed, Ended>> notes;
  Stats stats;
  std::thread thread;
};

BlockServer::Impl::Impl(Config c, std::shared_ptr<Shelf> s)
    : config(std::move(c)), shelf(std::move(s)) {
  const Settings& settings = config.settings;
  if (settings.key.empty() && !is_loopback(settings.listen.host))
    fail_load(
        "the block server would be open to everybody at {}: give --pd-comm-key-file, or "
        "--pd-comm-host 127.0.0.1",
        settings.listen.host);
  auto bound = listen_on(settings.listen);
  if (!bound) fail_load("--pd-comm-port: {}", bound.error().what);
  listener = std::move(*bound);
  shelf->on_change([this](const kv::BlockKey& key, bool here) { tell({Changed{key, here}}); });
  thread = std::thread([this] { run(); });
}

void BlockServer::Impl::end() {
  stop = true;
  wake.signal();
  if (thread.joinable()) thread.join();
}

void BlockServer::Impl::tell(std::vector<std::variant<Changed, Ended>> more) {
  {
    std::lock_guard lock(mutex);
    notes.insert(notes.end(), more.begin(), more.end());
  }
  wake.signal();
}

void BlockServer::Impl::run() {
  pthread_setname_np(pthread_self(), "block-server");
  while (!stop) {
    wait();
    take_notes();
    // The order of `polled` is that of the connections there were when it was made.
    size_t i = 2;
    for (Connection& c : connections)
      if (i < polled.size()) serve(c, polled[i++].revents);
    const auto now = Clock::now();
    for (Connection& c : connections) end_waits(c, now);
    for (auto it = connections.begin(); it != connections.end();) {
      const bool done = it->gone || (it->closing && it->stream.unsent() == 0);
      if (done) drop(*it);
      it = done ? connections.erase(it) : std::next(it);
    }
    if (polled[1].revents != 0) accept_all();
    publish();
  }
  for (Connection& c : connections) drop(c);
}

void BlockServer::Impl::wait() {
  const bool accepts = Clock::now() >= accepts_from;
  polled.assign({{wake.fd(), POLLIN, 0}, {accepts ? listener.get() : -1, POLLIN, 0}});
  for (const Connection& c : connections) {
    const bool sends = c.stream.unsent() > 0 || !c.reads.empty();
    const bool reads = c.stream.unsent() < shelf->block_bytes() + kReadAtOnce;
    polled.push_back(
        {c.stream.fd(), static_cast<short>((sends ? POLLOUT : 0) | (reads ? POLLIN : 0)), 0});
  }
  const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(kTick);
  const bool needs_tick = !accepts || !connections.empty();
  poll(polled.data(), polled.size(), needs_tick ? static_cast<int>(tick.count()) : -1);
}

void BlockServer::Impl::take_notes() {
  wake.clear();
  std::vector<std::variant<Changed, Ended>> now;
  {
    std::lock_guard lock(mutex);
    now.swap(notes);
  }
  for (const auto& note : now) {
    if (const auto* changed = std::get_if<Changed>(&note)) key_changed(*changed);
    if (const auto* ended = std::get_if<Ended>(&note)) prompt_ended(*ended);
  }
}

// Where there are too many connections, the one ends that has not logged in for longest. Returns
// false if all have logged in.
bool BlockServer::Impl::make_room() {
  const auto stranger = [](const Connection& c) { return !c.welcome; };
  const auto strangers = static_cast<size_t>(std::ranges::count_if(connections, stranger));
  if (strangers < kMaxStrangers && std::ssize(connections) < config.limits.connections) return true;
  const auto oldest = std::ranges::find_if(connections, stranger);
  if (oldest == connections.end()) return false;
  connections.erase(oldest);  // it has no leases
  return true;
}

void BlockServer::Impl::accept_all() {
  for (Fd fd = accept_from(listener); fd.open(); fd = accept_from(listener)) {
    if (!make_room()) continue;
    Connection& c = connections.emplace_back(std::move(fd));
    write(Hello{.nonce = c.nonce}, c.stream.out());
    c.gone = !c.stream.send();
  }
  accept_failed(errno);
}

// A connection that cannot be accepted keeps the listener readable, so poll() leaves the listener
// out for a tick.
void BlockServer::Impl::accept_failed(int error) {
  if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return;
  const auto now = Clock::now();
  accepts_from = now + kTick;
  if (warned && now < *warned + kBetweenWarnings) return;
  warned = now;
  spdlog::warn("the block server cannot accept a connection: {}", std::strerror(error));
}

void BlockServer::Impl::serve(Connection& c, short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !c.closing) {
    if (!c.stream.receive(c.welcome ? kReadAtOnce : kMaxGreeting)) c.gone = true;
    read_messages(c);
  }
  if (c.closing && (events & (POLLHUP | POLLERR)) != 0) c.gone = true;
  if (!c.gone) send_blocks(c);
}

void BlockServer::Impl::read_messages(Connection& c) {
  while (!c.gone && !c.closing) {
    std::string_view in = c.stream.received();
    const size_t before = in.size();
    auto message = take(in, c.welcome ? kMaxFrame : kMaxGreeting);
    if (!message) return refuse(c, message.error().what);
    if (!*message) return;
    c.stream.consume(before - in.size());
    c.heard = Clock::now();
    answer(c, **message);
  }
}

void BlockServer::Impl::answer(Connection& c, Message& message) {
  if (!c.welcome) return greet(c, message);
  if (auto* wish = std::get_if<Open>(&message)) return open(c, *wish);
  if (const auto* end = std::get_if<Close>(&message)) return close(c, end->lease);
  if (const auto* wish = std::get_if<Read>(&message)) return read(c, *wish);
  if (std::holds_alternative<Renew>(message)) return write(Renew{}, c.stream.out());
  refuse(c, "a message that only the other side sends");
}

void BlockServer::Impl::greet(Connection& c, const Message& message) {
  const auto* login = std::get_if<Login>(&message);
  if (login == nullptr) return refuse(c, "the first message is no login");
  const std::string& key = config.settings.key;
  if (!same(login->proof, proof(key, "decode", c.nonce, login->nonce)))
    return refuse(c, "the keys of --pd-comm-key-file differ, or only one side has one");
  if (const std::string why = difference(config.facts, login->facts); !why.empty())
    return refuse(c, why);
  c.welcome = true;
  write(Welcome{.proof = proof(key, "prefill", login->nonce, c.nonce),
                .lease_ms = static_cast<uint32_t>(config.settings.lease_seconds * 1000)},
        c.stream.out());
}

void BlockServer::Impl::refuse(Connection& c, const std::string& why) {
  say_refused(c, why);
  write(Refused{why}, c.stream.out());
  c.closing = true;
}

// Whoever reaches the port can be refused as often as it likes, so not each time gets a line.
void BlockServer::Impl::say_refused(const Connection& c, const std::string& why) {
  const auto now = Clock::now();
  if (said_refused && now < *said_refused + kBetweenRefusals) return void(++unsaid);
  said_refused = now;
  const std::string host = host_of_peer(c.stream.fd());
  spdlog::warn("a decode instance at {} was refused: {}{}", host.empty() ? "(gone)" : host,
               escaped(why, kMaxReason),
               unsaid == 0 ? "" : fmt::format("; {} more since the last such line", unsaid));
  unsaid = 0;
}

// A decode instance on which very many prompts wait knows no bounds, and the leases that it has are
// still of use to it. So one more is left out: its reads find no lease.
void BlockServer::Impl::open(Connection& c, Open& message) {
  const Limits& limits = config.limits;
  if (c.leases.size() >= limits.leases || c.keys + message.keys.size() > limits.keys) return;
  if (draining && !message.prompt.empty()) return;
  const auto [it, is_new] = c.leases.emplace(message.lease, Lease{});
  if (!is_new) return refuse(c, fmt::format("lease {} is open already", message.lease));
  Lease& lease = it->second;
  lease.keys = std::move(message.keys);
  c.keys += lease.keys.size();
  for (const kv::BlockKey& key : lease.keys) shelf->lease(key);
  if (!message.prompt.empty()) start(lease, message);
}

void BlockServer::Impl::start(Lease& lease, Open& message) {
  lease.seq = next++;
  ++prompts;
  NewSequence sequence;
  sequence.id = lease.seq;
  sequence.prompt = std::move(message.prompt);
  sequence.params.temperature = 0;
  sequence.stop.max_tokens = 1;
  sequence.priority = message.priority;
  sequence.cache.salt = std::move(message.salt);
  sequence.cache.extras = std::move(message.extras);
  config.compute(std::move(sequence));
}

void BlockServer::Impl::close(Connection& c, uint64_t id) {
  const auto found = c.leases.find(id);
  if (found == c.leases.end()) return;
  const Lease& lease = found->second;
  for (const kv::BlockKey& key : lease.keys) shelf->unlease(key);
  c.keys -= lease.keys.size();
  if (lease.seq != 0 && !lease.failed && !lease.done) config.cancel(lease.seq);
  c.leases.erase(found);
  const auto of_it = [id](const Read& read) { return read.lease == id; };
  std::erase_if(c.reads, of_it);
  std::erase_if(c.waiting, of_it);
}

void BlockServer::Impl::read(Connection& c, const Read& message) {
  if (c.reads.size() + c.waiting.size() >= config.limits.reads)
    return refuse(c, fmt::format("more than {} reads at a time", config.limits.reads));
  if (!c.leases.contains(message.lease)) return miss(c, message, Loss::kMissing);
  c.reads.push_back(message);
}

void BlockServer::Impl::miss(Connection& c, const Read& read, Loss why) {
  write(Miss{.job = read.job, .why = static_cast<uint8_t>(why)}, c.stream.out());
}

// Returns false if the block is not here. Its bytes are sent from the shelf.
bool BlockServer::Impl::send_block(Connection& c, const Read& read) {
  c.sending = shelf->lend(read.key);
  if (!c.sending) return false;
  const Sum& sum = c.sending->sum();
  write(Block{.job = read.job, .key = read.key, .low = sum.low, .high = sum.high}, c.stream.out());
  c.stream.send_body(c.sending->bytes());
  ++blocks;
  return true;
}

// At most one block, or what the system takes at once, waits to be sent.
void BlockServer::Impl::send_blocks(Connection& c) {
  for (int sent = 0; c.stream.send();) {
    if (c.stream.body_sent()) c.sending.reset();
    if (c.stream.unsent() > 0 || c.reads.empty() || c.closing || sent == kBlocksAtOnce) return;
    const Read next = c.reads.front();
    c.reads.pop_front();
    if (send_block(c, next))
      ++sent;
    else
      c.waiting.push_back(next);
  }
  c.gone = true;
}

void BlockServer::Impl::key_changed(const Changed& note) {
  for (Connection& c : connections)
    std::erase_if(c.waiting, [&](const Read& read) {
      if (read.key != note.key) return false;
      if (note.here)
        c.reads.push_back(read);
      else
        miss(c, read, Loss::kMissing);
      return true;
    });
}

void BlockServer::Impl::prompt_ended(const Ended& note) {
  for (Connection& c : connections)
    for (auto& [id, lease] : c.leases) {
      if (lease.seq != note.id) continue;
      lease.failed = !note.computed;
      if (note.computed) lease.done = Clock::now();
    }
}

// Reads that have nothing to wait for are answered, and a connection that is silent ends.
void BlockServer::Impl::end_waits(Connection& c, Clock::time_point now) {
  const auto grace = duration_of(config.limits.grace_seconds);
  std::erase_if(c.waiting, [&](const Read& read) {
    const Lease& lease = c.leases.at(read.lease);
    if (!lease.failed && !(lease.done && now > *lease.done + grace)) return false;
    miss(c, read, lease.failed ? Loss::kFailed : Loss::kMissing);
    return true;
  });
  const auto patience =
      duration_of(c.welcome ? config.settings.lease_seconds : config.limits.greeting_seconds);
  if (now > (c.welcome ? c.heard : c.since) + patience) c.gone = true;
}

void BlockServer::Impl::drop(Connection& c) {
  while (!c.leases.empty()) close(c, c.leases.begin()->first);
}

void BlockServer::Impl::publish() {
  int leases = 0;
  for (const Connection& c : connections) leases += static_cast<int>(c.leases.size());
  std::lock_guard lock(mutex);
  stats.blocks = blocks;
  stats.bytes = blocks * shelf->block_bytes();
  stats.prompts = prompts;
  stats.leases = leases;
  stats.connections = static_cast<int>(connections.size());
}

BlockServer::BlockServer(Config config, std::shared_ptr<Shelf> shelf)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(shelf))) {}
BlockServer::~BlockServer() = default;
void BlockServer::begin_drain() { impl_->draining = true; }
void BlockServer::stop() { impl_->end(); }
int BlockServer::port() const { return port_of(impl_->listener); }
void BlockServer::ended(SeqId id, bool computed) { impl_->tell({Ended{id, computed}}); }
Stats BlockServer::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

}  // namespace skiff::peer
