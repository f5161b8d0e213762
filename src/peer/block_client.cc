#include "peer/block_client.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "base/seconds.h"
#include "peer/block_copier.h"
#include "peer/server_link.h"

namespace skiff::peer {
namespace {

using Clock = ServerLink::Clock;
constexpr size_t kMaxServers = 64;
constexpr auto kTick = std::chrono::milliseconds(100);

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Server {
  Server(Address address, const LinkConfig& config, ServerLink::Owner& owner)
      : link(std::move(address), config, owner) {}
  ServerLink link;
  int leases = 0;        // open ones
  uint64_t prompts = 0;  // prompts that it was asked to compute
};

struct OpenLease {
  Server* server = nullptr;  // null: it has failed
  size_t missing = 0;        // tokens of the blocks that have not come
  bool asked = false;        // the server computes the prompt for this instance
  Clock::time_point progress{};
};

struct Reading {
  kv::TierJob job;
  Clock::time_point since;
  bool copied = false;  // a copier has its host block
};

// What a copier says of a block that was found in shared memory.
struct Copied {
  uint64_t job = 0;
  bool right = false;
  Clock::time_point began;
};

// A lease that the engine's thread asks for.
struct Opening {
  Open wish;
  size_t tokens = 0;
  std::optional<KvOrigin> origin;
};
using Command = std::variant<Opening, Close, kv::TierJob, Copied>;

}  // namespace

struct BlockClient::Impl final : ServerLink::Owner {
  explicit Impl(Config c);
  ~Impl() override;

  std::span<std::byte> place_for(const Block& block) override;
  void came(const Block& block, const Arrival& arrival) override;
  void found(ServerLink& link, const Here& here, const Found& found) override;
  void missed(const Miss& miss) override;
  void lost(ServerLink& link, Loss why, const std::string& reason) override;

  void run();
  void wait();
  void carry_out(Command& command);
  void open(Opening& opening);
  void close(uint64_t lease);
  void read(kv::TierJob job);
  void copied(const Copied& copy);
  void use(uint64_t job, Clock::time_point began);
  Server& add(Address address);
  Server* least_busy();
  Server* server_at(const Address& wanted);
  void fail(uint64_t lease, Loss why);
  void end_reads(uint64_t lease, bool late);
  void answer(const Reading& reading, bool ok, bool late = false);
  void end_late(Clock::time_point now);
  void publish();
  void tell(Command command);

  const Config config;
  const LinkConfig link_config;
  Wake wake;
  std::list<Server> servers;  // the client thread's, like the members below
  std::unordered_map<uint64_t, OpenLease> leases;
  std::map<uint64_t, Reading> reads;  // by job
  // Those of leases that have ended, or failed, which are answered once their copiers are done; and
  // whether they came late.
  std::map<uint64_t, std::pair<Reading, bool>> leaving;
  std::vector<pollfd> polled;
  Stats counts;
  std::atomic<bool> stop = false;
  mutable std::mutex mutex;  // guards the members below
  std::vector<Command> commands;
  Stats stats;
  BlockCopier copier;
  std::thread thread;
};

BlockClient::Impl::Impl(Config c)
    : config(std::move(c)),
      link_config{.key = config.settings.key,
                  .facts = config.facts,
                  .block_bytes = config.block_bytes,
                  .shares_memory = config.settings.shares_memory},
      copier({.threads = config.copiers,
              .put = config.put,
              .answer = [this](const BlockCopier::Job& job, bool right) {
                tell(Copied{job.id, right, job.began});
              }}) {
  for (const Address& address : config.settings.prefills) add(address);
  thread = std::thread([this] { run(); });
}

BlockClient::Impl::~Impl() {
  stop = true;
  wake.signal();
  thread.join();
}

void BlockClient::Impl::tell(Command command) {
  {
    std::lock_guard lock(mutex);
    commands.push_back(std::move(command));
  }
  wake.signal();
}

void BlockClient::Impl::run() {
  pthread_setname_np(pthread_self(), "block-client");
  while (!stop) {
    wait();
    size_t i = 1;
    for (Server& s : servers)
      if (s.link.connected() && i < polled.size()) {
        s.link.serve(polled[i].revents);
        i += 2;
      }
    wake.clear();
    std::vector<Command> now;
    {
      std::lock_guard lock(mutex);
      now.swap(commands);
    }
    for (Command& command : now) carry_out(command);
    const auto time = Clock::now();
    end_late(time);
    for (Server& s : servers) s.link.keep_alive(time);
    publish();
  }
}

void BlockClient::Impl::wait() {
  polled.assign({{wake.fd(), POLLIN, 0}});
  for (const Server& s : servers)
    if (s.link.connected()) {
      polled.push_back(s.link.polled());
      polled.push_back(s.link.memory_polled());
    }
  const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(kTick);
  const bool idle = leases.empty() && reads.empty() && polled.size() == 1;
  poll(polled.data(), polled.size(), idle ? -1 : static_cast<int>(tick.count()));
}

void BlockClient::Impl::carry_out(Command& command) {
  if (auto* opening = std::get_if<Opening>(&command)) return open(*opening);
  if (const auto* end = std::get_if<Close>(&command)) return close(end->lease);
  if (const auto* copy = std::get_if<Copied>(&command)) return copied(*copy);
  read(std::move(std::get<kv::TierJob>(command)));
}

Server& BlockClient::Impl::add(Address address) {
  return servers.emplace_back(std::move(address), link_config, *this);
}

// Returns the server with the fewest leases among Settings::prefills, or null if none of them may
// be tried now.
Server* BlockClient::Impl::least_busy() {
  const auto less = [](const Server& a, const Server& b) {
    return std::pair(a.leases, a.prompts) < std::pair(b.leases, b.prompts);
  };
  Server* best = nullptr;
  size_t left = config.settings.prefills.size();  // they are the first of the list
  for (Server& s : servers) {
    if (left-- == 0) break;
    if (!s.link.rests() && (best == nullptr || less(s, *best))) best = &s;
  }
  return best;
}

// Returns the server with this address, or null if it may not be tried, or not now.
Server* BlockClient::Impl::server_at(const Address& wanted) {
  for (Server& s : servers)
    if (s.link.address() == wanted) return s.link.rests() ? nullptr : &s;
  if (config.settings.key.empty() && !is_loopback(wanted.host)) {
    spdlog::warn("{} port {} is not asked for blocks: it is not this machine, and there is no key",
                 escaped(wanted.host), wanted.port);
    return nullptr;
  }
  if (servers.size() >= kMaxServers + config.settings.prefills.size()) {
    const auto unused =
        std::ranges::find_if(std::next(servers.begin(), std::ssize(config.settings.prefills)),
                             servers.end(), [](const Server& s) { return s.leases == 0; });
    if (unused == servers.end()) return nullptr;
    servers.erase(unused);
  }
  return &add(wanted);
}

void BlockClient::Impl::open(Opening& opening) {
  OpenLease& lease = leases[opening.wish.lease];
  lease.missing = opening.tokens;
  lease.asked = !opening.wish.prompt.empty();
  lease.progress = Clock::now();
  const std::optional<KvOrigin>& origin = opening.origin;
  Server* server = origin ? server_at({origin->host, origin->port}) : least_busy();
  if (server == nullptr || (!server->link.connected() && !server->link.connect()))
    return fail(opening.wish.lease, Loss::kGone);
  lease.server = server;
  ++server->leases;
  counts.prompts += lease.asked;
  server->prompts += lease.asked;
  server->link.send(opening.wish);
  server->link.flush();
}

void BlockClient::Impl::close(uint64_t id) {
  const auto found = leases.find(id);
  if (found == leases.end()) return;
  if (Server* server = found->second.server) {
    server->link.send(Close{id});
    --server->leases;
  }
  leases.erase(found);
  end_reads(id, /*late=*/false);
}

void BlockClient::Impl::read(kv::TierJob job) {
  const Reading reading{std::move(job), Clock::now()};
  const auto lease = leases.find(static_cast<uint64_t>(reading.job.record));
  if (lease == leases.end() || lease->second.server == nullptr) return answer(reading, false);
  const kv::TierJob& wanted = reading.job;
  lease->second.server->link.send(Read{.job = wanted.id, .lease = lease->first, .key = wanted.key});
  reads.emplace(wanted.id, reading);
}

void BlockClient::Impl::answer(const Reading& reading, bool ok, bool late) {
  // The time is not told: a block may have been waited for, and is taken even where computing it
  // would be cheaper.
  config.answer({.job = reading.job.id, .ok = ok, .seconds = 0, .late = late});
}

// Gives the lease up: what is left of its blocks is computed here.
void BlockClient::Impl::fail(uint64_t id, Loss why) {
  const auto found = leases.find(id);
  if (found == leases.end()) return;
  OpenLease& lease = found->second;
  counts.recomputed[static_cast<int>(why)] += std::exchange(lease.missing, 0);
  if (lease.server != nullptr) {
    lease.server->link.send(Close{id});
    --lease.server->leases;
    // It may have stopped: no further prompt waits for it until it says something.
    if (why == Loss::kLate) lease.server->link.doubt();
    lease.server = nullptr;
  }
  publish();
  end_reads(id, why == Loss::kLate);
}

// Answers all reads of a lease that has ended, or failed, as failed.
void BlockClient::Impl::end_reads(uint64_t lease, bool late) {
  std::erase_if(reads, [&](const auto& each) {
    const Reading& reading = each.second;
    if (static_cast<uint64_t>(reading.job.record) != lease) return false;
    for (Server& s : servers) s.link.discard(reading.job.id);
    if (reading.copied)
      leaving.emplace(each.first, std::pair(reading, late));
    else
      answer(reading, false, late);
    return true;
  });
}

void BlockClient::Impl::lost(ServerLink& link, Loss why, const std::string& reason) {
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases)
    if (lease.server != nullptr && &lease.server->link == &link) ids.push_back(id);
  if (!ids.empty() || why != Loss::kGone)
    spdlog::warn("prefill instance {} port {}: {}; what it has not sent is computed here",
                 link.address().host, link.address().port, escaped(reason));
  for (const uint64_t id : ids) fail(id, why);
}

void BlockClient::Impl::missed(const Miss& miss) {
  const auto found = reads.find(miss.job);
  if (found == reads.end()) return;
  const auto why = miss.why == static_cast<uint8_t>(Loss::kFailed) ? Loss::kFailed : Loss::kMissing;
  fail(static_cast<uint64_t>(found->second.job.record), why);
}

std::span<std::byte> BlockClient::Impl::place_for(const Block& block) {
  const auto found = reads.find(block.job);
  if (found == reads.end() || found->second.copied || !config.memory) return {};
  return config.memory(found->second.job.host_block);
}

// A block that nobody waits for any more is skipped.
void BlockClient::Impl::came(const Block& block, const Arrival& arrival) {
  const auto found = reads.find(block.job);
  if (found == reads.end() || found->second.copied) return;
  const Reading& reading = found->second;
  if (block.key != reading.job.key || arrival.sum != Sum{block.low, block.high})
    return fail(static_cast<uint64_t>(reading.job.record), Loss::kDamaged);
  if (place_for(block).empty()) config.put(reading.job.host_block, arrival.bytes);
  use(block.job, arrival.began);
}

void BlockClient::Impl::found(ServerLink& link, const Here& here, const Found& found) {
  const auto known = reads.find(here.job);
  if (known == reads.end() || known->second.copied) return link.taken(here.job);
  Reading& reading = known->second;
  if (here.key != reading.job.key)
    return fail(static_cast<uint64_t>(reading.job.record), Loss::kDamaged);
  const int host = reading.job.host_block;
  reading.copied = true;
  copier.start({.id = here.job,
                .memory = found.memory,
                .from = found.bytes,
                .host_block = host,
                .to = config.memory ? config.memory(host) : std::span<std::byte>(),
                .sum = {here.low, here.high},
                .began = Clock::now()});
}

void BlockClient::Impl::copied(const Copied& copy) {
  if (const auto found = leaving.find(copy.job); found != leaving.end()) {
    answer(found->second.first, false, found->second.second);
    return void(leaving.erase(found));
  }
  Reading& reading = reads.at(copy.job);
  reading.copied = false;
  const auto lease = static_cast<uint64_t>(reading.job.record);
  leases.at(lease).server->link.taken(copy.job);
  if (!copy.right) return fail(lease, Loss::kDamaged);
  ++counts.shared_blocks;
  counts.shared_bytes += config.block_bytes;
  use(copy.job, copy.began);
}

// The block is in its host block.
void BlockClient::Impl::use(uint64_t job, Clock::time_point began) {
  const auto found = reads.find(job);
  OpenLease& lease = leases.at(static_cast<uint64_t>(found->second.job.record));
  lease.missing -= std::min(lease.missing, found->second.job.tokens.size());
  lease.progress = Clock::now();
  ++counts.blocks;
  counts.bytes += config.block_bytes;
  counts.seconds += seconds_since(began);
  publish();
  answer(found->second, true);
  reads.erase(found);
}

// Fails the leases that wait for a block for longer than Settings::wait_seconds. A server in doubt
// has been silent for that long already, so reads of it are given no time of their own.
void BlockClient::Impl::end_late(Clock::time_point now) {
  const auto patience = duration_of(config.settings.wait_seconds);
  std::vector<uint64_t> late;
  for (const auto& [job, reading] : reads) {
    const auto id = static_cast<uint64_t>(reading.job.record);
    const OpenLease& lease = leases.at(id);
    const bool doubted = lease.server != nullptr && lease.server->link.doubted();
    const auto since = doubted ? lease.progress : std::max(reading.since, lease.progress);
    if (now > since + patience) late.push_back(id);
  }
  for (const uint64_t lease : late) fail(lease, Loss::kLate);
}

// Called before answers are given, too, so that who has an answer finds it counted.
void BlockClient::Impl::publish() {
  counts.leases = 0;
  counts.connections = 0;
  for (const Server& s : servers) {
    counts.leases += s.leases;
    counts.connections += s.link.ready();
  }
  std::lock_guard lock(mutex);
  stats = counts;
}

BlockClient::BlockClient(Config config) : impl_(std::make_unique<Impl>(std::move(config))) {}
BlockClient::~BlockClient() = default;
void BlockClient::open(Open wish, size_t tokens, const std::optional<KvOrigin>& origin) {
  impl_->tell(Opening{std::move(wish), tokens, origin});
}
void BlockClient::close(uint64_t lease) { impl_->tell(Close{lease}); }
void BlockClient::start(kv::TierJob job) { impl_->tell(std::move(job)); }
Stats BlockClient::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

}  // namespace skiff::peer
