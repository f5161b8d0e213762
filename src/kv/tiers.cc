#include "kv/tiers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skiff::kv {

constexpr int kNone = PlaceIndex::kNone;
// The most sequences that wait for room; further ones do without a source. Fewer than the scheduler
// passes over in a step (Scheduler::admit()), so that it comes to those that have the room.
constexpr int kMaxRoomWaiters = 256;
static_assert(kNone == BlockSource::kNone);

Tiers::Tiers(const TierConfig& config, int num_blocks, int block_size, uint64_t seed,
             BlockSources sources)
    : config_(config),
      block_size_(static_cast<size_t>(block_size)),
      host_(config.host_blocks, seed),
      sources_(std::move(sources)),
      tokens_(static_cast<size_t>(config.host_blocks) * block_size_),
      host_blocks_(static_cast<size_t>(config.host_blocks)),
      blocks_(empty() ? 0 : static_cast<size_t>(num_blocks)),
      cost_(block_size) {
  SKIFF_CHECK(sources_.empty() || !empty(), "sources need host memory");
  SKIFF_CHECK(sources_.size() <= 64);
}

std::span<const Token> Tiers::slice(std::span<const Token> tokens, size_t i) const {
  return tokens.subspan(i * block_size_, std::min(block_size_, tokens.size() - i * block_size_));
}

std::span<const Token> Tiers::tokens_of(int host) const {
  return slice(tokens_, static_cast<size_t>(host)).first(static_cast<size_t>(tokens_in(host)));
}

int Tiers::find_host(const BlockKey& key, std::span<const Token> tokens) const {
  const int host = host_.find(key);
  return host != kNone && std::ranges::equal(tokens_of(host), tokens) ? host : kNone;
}

std::vector<int> Tiers::ready(const Text& text) {
  std::vector<int> found;
  for (size_t i = text.from; i < text.keys.size(); ++i) {
    const int host = find_host(text.keys[i], slice(text.tokens, i));
    if (host == kNone || !host_.ready(host)) break;
    found.push_back(host);
  }
  if (found.empty() || pays()) return found;
  for (const auto& source : sources_) source->fade();
  ++stats_.recomputed;
  return {};
}

uint64_t Tiers::fetch(const Text& text, size_t& asked, Kept& kept) {
  uint64_t awaited = 0;
  std::vector<int> found;  // pinned, so that fetched blocks do not evict the blocks before them
  for (size_t i = text.from; i < text.keys.size(); ++i) {
    const auto tokens = slice(text.tokens, i);
    int host = find_host(text.keys[i], tokens);
    if (host == kNone && i >= asked) {
      const int from = affordable_source(text.keys[i]);
      if (from != kNone && !take_room(kept, text.keys.size() - text.from)) {
        if (const uint64_t room = wait_for_room(kept); room != 0) awaited = room;
        break;
      }
      if (from != kNone) host = fetch_one(from, text.keys[i], tokens);
    }
    if (host == kNone) break;
    if (!host_.ready(host)) asked = std::max(asked, i + 1);
    if (!host_.ready(host)) awaited = host_block(host).job;
    host_.pin(host);
    host_.touch(host);
    found.push_back(host);
  }
  if (kept.room_ > 0) found.swap(kept.hosts_);
  for (const int host : found) host_.unpin(host);
  return awaited;
}

void Tiers::keep(Kept& kept, std::span<const int> hosts) {
  for (const int host : hosts) host_.pin(host);
  kept.tiers_ = this;
  for (const int host : kept.hosts_) host_.unpin(host);
  kept.hosts_.assign(hosts.begin(), hosts.end());
}

// A text that is larger than host memory still gets what there is, once it is alone. Nobody takes
// room before those that wait, which come in the scheduler's order once some is given back.
bool Tiers::take_room(Kept& kept, size_t blocks) {
  if (kept.room_ > 0) return true;
  const int room = static_cast<int>(blocks);
  if (room_taken_ > 0 && (turned_away_ || room > host_.size() - room_taken_)) return false;
  room_taken_ += room;
  kept.tiers_ = this;
  kept.room_ = room;
  stats_.waiting -= std::exchange(kept.waits_, false);
  return true;
}

uint64_t Tiers::wait_for_room(Kept& kept) {
  if (!kept.waits_ && stats_.waiting == kMaxRoomWaiters) {
    ++stats_.skipped;
    return 0;
  }
  stats_.waiting += !std::exchange(kept.waits_, true);
  kept.tiers_ = this;
  turned_away_ = true;
  return kRoom;
}

void Tiers::Kept::let_go() {
  if (tiers_ == nullptr) return;
  for (const int host : std::exchange(hosts_, {})) tiers_->host_.unpin(host);
  tiers_->stats_.waiting -= std::exchange(waits_, false);
  tiers_->return_room(std::exchange(room_, 0));
  tiers_ = nullptr;
}

// Plans in flight may still read the host blocks, so their places are free once the last of these
// plans is committed.
void Tiers::return_room(int room) {
  Flight* last = !now_.held.empty() ? &now_ : flights_.empty() ? nullptr : &flights_.back();
  if (last != nullptr)
    last->room += room;
  else
    room_is_free(room);
}

void Tiers::room_is_free(int room) {
  room_taken_ -= room;
  turned_away_ = turned_away_ && room == 0;
}

// Returns the first usable source that has the block and from which it is cheaper to fetch than to
// compute.
int Tiers::affordable_source(const BlockKey& key) {
  bool refused = false;
  for (int i = 0; i < static_cast<int>(sources_.size()); ++i) {
    if (!source(i).usable() || !source(i).has(key)) continue;
    if (pays(source(i).fetch_seconds())) return i;
    source(i).fade();
    refused = true;
  }
  stats_.recomputed += refused;
  return kNone;
}

int Tiers::fetch_one(int from, const BlockKey& key, std::span<const Token> tokens) {
  const int host = put(key, tokens);
  if (host == kNone) {
    ++stats_.skipped;
    return kNone;
  }
  start({.kind = TierJob::Kind::kRead,
         .source = from,
         .host_block = host,
         .record = source(from).begin_fetch(key),
         .key = key,
         .tokens = {}});
  host_block(host).job = last_job_;
  return host;
}

// Returns a host block for these tokens; kNone if there is none.
int Tiers::put(const BlockKey& key, std::span<const Token> tokens) {
  const int host = host_.put(key);
  if (host == kNone) return kNone;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(block_size_) * host);
  host_block(host).tokens = static_cast<int>(tokens.size());
  return host;
}

void Tiers::hold(int host) {
  host_.pin(host);
  now_.held.push_back(host);
}

void Tiers::load(int host, BlockId block) {
  loads_.push_back({.block = block, .host = host});
  this->block(block).loads = true;
  ++stats_.loads;
  const bool fetched = std::exchange(host_block(host).fetched, false);
  (fetched ? stats_.file_tokens : stats_.host_tokens) += static_cast<uint64_t>(tokens_in(host));
  host_.cool(host);  // the device has it now; its eviction makes the host copy hot again
}

bool Tiers::wanted(const BlockKey& key) const {
  return std::ranges::any_of(
      sources_, [&](const auto& source) { return source->usable() && source->wants(key); });
}

void Tiers::published(BlockId id, const BlockKey& key) {
  OnDevice& b = block(id);
  SKIFF_CHECK(!b.pending, "block {} was not forgotten", id);
  b = {.key = key, .pending = wanted(key), .loads = b.loads};
  if (!b.pending) return;
  pending_.push_back(id);
  ++num_pending_;
}

void Tiers::evicted(BlockId id, std::span<const Token> tokens) {
  if (empty()) return;
  OnDevice& b = block(id);
  num_pending_ -= std::exchange(b.pending, false);
  const bool to_source = wanted(b.key);
  int host = find_host(b.key, tokens);
  if (host != kNone) {
    host_.touch(host);
  } else if (config_.spill || to_source) {
    host = save(id, b.key, tokens);
    stats_.skipped += host == kNone;
  }
  if (host != kNone && to_source) store_later(host);
}

void Tiers::found(BlockId id) {
  OnDevice& b = block(id);
  if (!config_.stores_found || b.pending || !wanted(b.key)) return;
  b.pending = true;
  pending_.push_back(id);
  ++num_pending_;
}

bool Tiers::wants_partial(const BlockKey& key) const {
  return std::ranges::any_of(sources_, [&](const auto& source) {
    return source->usable() && source->takes_partial() && source->wants(key);
  });
}

int Tiers::save(BlockId id, const BlockKey& key, std::span<const Token> tokens) {
  const int host = put(key, tokens);
  if (host == kNone) return kNone;
  now_.held.push_back(host);
  host_.set_ready(host);
  host_block(host).fetched = false;
  saves_.push_back({.block = id, .host = host});
  ++stats_.saves;
  return host;
}

// Returns false if host memory has no place for the oldest one.
bool Tiers::save_one_owed() {
  const Partial& oldest = owed_.front();
  int host = find_host(oldest.key, oldest.tokens);
  if (host == kNone) {
    host = save(oldest.block, oldest.key, oldest.tokens);
    if (host == kNone) return false;
    host_.cool(host);
  }
  store_later(host);
  saved_.push_back(oldest.block);
  owed_.pop_front();
  return true;
}

void Tiers::save_owed() {
  while (!owed_.empty()) {
    if (save_one_owed()) continue;
    ++stats_.skipped;
    saved_.push_back(owed_.front().block);
    owed_.pop_front();
  }
}

// Gives the host block to every source that wants it, once the plan that is being made is
// committed, because only then is the host block written.
void Tiers::store_later(int host) {
  if (!host_.ready(host)) return;
  for (int i = 0; i < static_cast<int>(sources_.size()); ++i) {
    uint64_t& storing = host_block(host).storing;
    const uint64_t bit = uint64_t{1} << i;
    if (tokens_of(host).size() < block_size_ && !source(i).takes_partial()) continue;
    if ((storing & bit) != 0 || !source(i).usable() || !source(i).wants(host_.key(host))) continue;
    storing |= bit;
    ++num_storing_;
    host_.pin(host);
    now_.stores.push_back({.host = host, .source = i});
  }
}

void Tiers::finish(StepPlan& plan, const PrefixTree& tree) {
  const int max_storing = std::max(1, host_.size() / 2);  // leaves room for fetches
  for (int n = 0; n < config_.saves_per_step && num_storing_ < max_storing && num_pending_ > 0;) {
    const BlockId id = pending_.front();
    OnDevice& b = block(id);
    if (b.pending && wanted(b.key)) {
      // If this plan loads the block, its host block is found here, and the block is not saved
      // before it is loaded.
      int host = find_host(b.key, tree.tokens(id));
      if (host == kNone) {
        host = save(id, b.key, tree.tokens(id));
        if (host == kNone) break;
        host_.cool(host);
        ++n;
      }
      store_later(host);
    }
    num_pending_ -= std::exchange(b.pending, false);
    pending_.pop_front();
  }
  for (int n = 0; n < config_.saves_per_step && num_storing_ < max_storing && !owed_.empty(); ++n)
    if (!save_one_owed()) break;
  plan.saves = std::exchange(saves_, {});
  plan.loads = std::exchange(loads_, {});
  for (const BlockCopy& load : plan.loads) block(load.block).loads = false;
  if (now_.held.empty() && now_.stores.empty()) return;
  SKIFF_CHECK(!plan.empty() || now_.held.empty(), "host blocks are held by no plan");
  now_.step = plan.empty() ? plan.step - 1 : plan.step;  // an empty plan is never committed
  flights_.push_back(std::exchange(now_, {}));
  if (flights_.back().step <= committed_) committed(committed_);
}

void Tiers::committed(uint64_t step) {
  committed_ = step;
  while (!flights_.empty() && flights_.front().step <= step) {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (const int host : flight.held) host_.unpin(host);
    room_is_free(flight.room);
    for (const Store& store : flight.stores) start_store(store);
  }
}

void Tiers::start_store(const Store& store) {
  const BlockKey& key = host_.key(store.host);
  const int record = source(store.source).begin_store(key);
  if (record != kNone)
    return start({.kind = TierJob::Kind::kWrite,
                  .source = store.source,
                  .host_block = store.host,
                  .record = record,
                  .key = key,
                  .tokens = {}});
  ++stats_.skipped;
  end_store(store);
}

void Tiers::end_store(const Store& store) {
  host_block(store.host).storing &= ~(uint64_t{1} << store.source);
  --num_storing_;
  host_.unpin(store.host);
}

void Tiers::start(TierJob job) {
  job.id = ++last_job_;
  open_.emplace(job.id, job);
  const auto tokens = tokens_of(job.host_block);
  job.tokens.assign(tokens.begin(), tokens.end());
  jobs_.push_back(std::move(job));
}

std::vector<TierJob> Tiers::take_jobs() { return std::exchange(jobs_, {}); }

void Tiers::source_is(const TierState& state) {
  SKIFF_CHECK(state.source >= 0 && state.source < std::ssize(sources_), "there is no source {}",
              state.source);
  source(state.source).set_usable(state.usable);
}

void Tiers::renew(const std::string& fingerprint) {
  SKIFF_CHECK(at_rest(), "{} jobs, {} plans in flight", open_.size(), flights_.size());
  for (int host = 0; host < host_.size(); ++host) host_.erase(host);
  std::ranges::fill(host_blocks_, HostBlock{});
  std::ranges::fill(blocks_, OnDevice{});
  pending_.clear();
  num_pending_ = 0;
  for (const Partial& each : std::exchange(owed_, {})) saved_.push_back(each.block);
  config_.fingerprint = fingerprint;
}

void Tiers::done(const TierDone& answer) {
  const auto found = open_.find(answer.job);
  SKIFF_CHECK(found != open_.end(), "job {} was never started", answer.job);
  const TierJob job = std::move(found->second);
  open_.erase(found);
  stats_.failures += !answer.ok;
  if (job.kind == TierJob::Kind::kRead) return has_fetched(job, answer);
  stats_.writes += answer.ok;
  source(job.source).end_store(job.record, answer.ok);
  end_store({.host = job.host_block, .source = job.source});
}

void Tiers::has_fetched(const TierJob& job, const TierDone& answer) {
  if (answer.ok || answer.late) source(job.source).fetch_took(answer.seconds);
  stats_.reads += answer.ok;
  host_block(job.host_block).fetched = answer.ok;
  if (answer.ok)
    host_.set_ready(job.host_block);
  else
    host_.erase(job.host_block);
  source(job.source).end_fetch(job.record, answer);
  host_.unpin(job.host_block);
}

}  // namespace skiff::kv
