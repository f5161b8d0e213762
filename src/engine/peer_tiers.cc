#include "engine/peer_tiers.h"

#include <algorithm>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/random.h"
#include "engine/shelf_io.h"
#include "peer/remote_source.h"
#include "peer/stream.h"

namespace skiff::engine {
namespace {

// Threads that copy blocks: to the shelf, or out of that of another process. A prompt has dozens of
// blocks, which all become ready in one step.
int copying_threads() {
  constexpr int kMost = 8, kCoresEach = 4;
  return std::clamp(usable_processors() / kCoresEach, 1, kMost);
}

// Starts reads at the client.
class ClientIo final : public TierIo {
 public:
  explicit ClientIo(std::shared_ptr<peer::BlockClient> client) : client_(std::move(client)) {}
  void start(kv::TierJob job) override { client_->start(std::move(job)); }

 private:
  const std::shared_ptr<peer::BlockClient> client_;
};

}  // namespace

PeerTiers::PeerTiers(const Resolved& resolved, LowerTiers& lower, Queue<Command>& inbox, bool quiet)
    : settings_(resolved.cache.peers), facts_(lower.facts), quiet_(quiet), inbox_(inbox) {
  if (settings_.role == peer::Role::kPrefill) open_shelf(resolved, lower);
  if (settings_.role == peer::Role::kDecode) open_client(lower);
}

PeerTiers::~PeerTiers() { stop(); }

// A step may save as many blocks as it can compute, so that they are on the shelf once the prompt
// is computed.
void PeerTiers::open_shelf(const Resolved& resolved, LowerTiers& lower) {
  shelf_ = std::make_shared<peer::Shelf>(lower.form->whole_bytes(), resolved.cache.shelf_blocks,
                                         random_seed(), settings_.shares_memory);
  if (settings_.shares_memory && shelf_->memory_file() < 0)
    spdlog::warn("blocks go over TCP on this machine, too: the system has no memory to share");
  lower.config.stores_found = lower.config.hands_over = true;
  lower.config.saves_per_step =
      std::max(lower.config.saves_per_step, resolved.limits.max_rows / resolved.cache.block_size);
  lower.sources.push_back(std::make_unique<peer::ShelfSource>(shelf_));
  io_ = std::make_unique<ShelfIo>(
      shelf_, lower.form, [&lower](int host_block) { return lower.host.block(host_block); }, inbox_,
      copying_threads());
}

void PeerTiers::open_client(LowerTiers& lower) {
  peer::Settings settings = settings_;
  for (peer::Address& address : settings.prefills) {
    auto numeric = peer::resolved(address);
    if (!numeric) fail_load("--prefill-peers: {}", numeric.error().what);
    if (settings.key.empty() && !peer::is_loopback(numeric->host))
      fail_load("--prefill-peers: {} is not this machine: give both sides --pd-comm-key-file",
                address.host);
    address = *numeric;
  }
  client_ = std::make_shared<peer::BlockClient>(peer::BlockClient::Config{
      .settings = settings,
      .facts = facts_,
      .block_bytes = lower.form->whole_bytes(),
      .memory =
          [&lower](int host_block) {
            return lower.form->same() ? lower.host.block(host_block) : std::span<std::byte>();
          },
      .put =
          [&lower](int host_block, std::span<const std::byte> bytes) {
            lower.form->cut(bytes, lower.host.block(host_block));
          },
      .copiers = copying_threads(),
      .answer = [this](const TierDone& done) { inbox_.push(done); }});
  lower.config.always_pays = true;
  lower.sources.push_back(
      std::make_unique<peer::RemoteSource>(client_, !settings.prefills.empty(), random_seed()));
  io_ = std::make_unique<ClientIo>(client_);
}

void PeerTiers::listen(std::function<void(NewSequence)> submit) {
  if (!shelf_) return;
  server_ = std::make_unique<peer::BlockServer>(
      peer::BlockServer::Config{.settings = settings_,
                                .facts = facts_,
                                .compute = std::move(submit),
                                .cancel = [this](SeqId id) { inbox_.push(Cancel{id}); }},
      shelf_);
  if (!quiet_)
    spdlog::info("prefill: blocks are handed out on {} port {}{}", settings_.listen.host,
                 server_->port(),
                 shelf_->memory_file() < 0 ? "" : ", and through shared memory on this machine");
}

void PeerTiers::take_own(std::vector<Event>& events) {
  if (!server_) return;
  std::erase_if(events, [this](const Event& event) {
    if (event.seq < peer::BlockServer::kFirstSeq) return false;
    const bool computed = event.finish == Finish::kLength || event.finish == Finish::kStop;
    if (event.finish != Finish::kNone) server_->ended(event.seq, computed);
    return true;
  });
}

peer::Stats PeerTiers::stats() const {
  if (server_) {
    peer::Stats stats = server_->stats();
    stats.port = server_->port();
    return stats;
  }
  return client_ ? client_->stats() : peer::Stats{};
}

void PeerTiers::begin_drain() {
  if (server_) server_->begin_drain();
}

void PeerTiers::close() {
  if (server_) server_->stop();
}

void PeerTiers::stop() {
  close();
  io_.reset();
}

}  // namespace skiff::engine
