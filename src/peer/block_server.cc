#include "peer/block_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/load_error.h"
#include "base/log.h"
#include "peer/block_server_impl.h"

namespace skiff::peer {
namespace {

constexpr size_t kMaxStrangers = 16;  // connections that have not logged in
constexpr size_t kReadAtOnce = 256 << 10;
constexpr int kBlocksAtOnce = 4;  // sent to one connection before the others have their turn
constexpr int kLettersAtOnce = 16;
constexpr auto kTick = std::chrono::milliseconds(200);
constexpr auto kBetweenWarnings = std::chrono::minutes(1);

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

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
  if (shelf->memory_file() >= 0) open_memory();
  shelf->on_change([this](const kv::BlockKey& key, bool here) { tell({Changed{key, here}}); });
  thread = std::thread([this] { run(); });
}

void BlockServer::Impl::open_memory() {
  auto socket = LocalSocket::open();
  if (socket) return void(memory.emplace(std::move(*socket)));
  spdlog::warn("blocks go over TCP on this machine, too: {}", socket.error().what);
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
    if (memory) give_memory();
    // The order of `polled` is that of the connections there were when it was made.
    size_t i = 3;
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
  connections.clear();
  publish();
}

void BlockServer::Impl::wait() {
  const bool accepts = Clock::now() >= accepts_from;
  polled.assign({{wake.fd(), POLLIN, 0},
                 {accepts ? listener.get() : -1, POLLIN, 0},
                 {memory ? memory->fd() : -1, POLLIN, 0}});
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

// The memory holds the blocks of all prompts, so only processes get it that could read this one's
// memory anyway: those of its user.
void BlockServer::Impl::give_memory() {
  for (int i = 0; i < kLettersAtOnce; ++i) {
    const auto letter = memory->take();
    if (!letter) return;
    if (letter->user != geteuid()) continue;
    const auto asks = std::ranges::find_if(connections, [&](const Connection& c) {
      return c.welcome && !c.wants.empty() && c.wants == letter->text;
    });
    if (asks == connections.end()) continue;
    asks->wants.clear();
    memory->send(letter->from, asks->answer, shelf->memory_file());
  }
}

void BlockServer::Impl::lend(Connection& c, const Read& read, Shelf::Loan loan) {
  const Sum& sum = loan.sum();
  write(Here{.job = read.job,
             .key = read.key,
             .place = static_cast<uint64_t>(loan.place()),
             .low = sum.low,
             .high = sum.high},
        c.stream.out());
  if (!c.lent.try_emplace(read.job, Lent{read.lease, std::move(loan)}).second)
    return refuse(c, fmt::format("job {} is open already", read.job));
  ++blocks;
  ++shared;
}

// Returns false if the block is not here. Its bytes are sent from the shelf, or read there.
bool BlockServer::Impl::answer_read(Connection& c, const Read& read) {
  auto loan = shelf->lend(read.key);
  if (!loan) return false;
  if (c.mapped) return lend(c, read, std::move(*loan)), true;
  c.sending = std::move(loan);
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
    if (answer_read(c, next))
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
  stats.shared_blocks = shared;
  stats.shared_bytes = shared * shelf->block_bytes();
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
void BlockServer::ended(SeqId id, bool computed) { impl_->tell({Impl::Ended{id, computed}}); }
Stats BlockServer::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

}  // namespace skiff::peer
