#include "kv/tiers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skiff {

Tiers::Tiers(const TierConfig& config, int num_blocks, int block_size, uint64_t seed)
    : config_(config),
      block_size_(static_cast<size_t>(block_size)),
      host_(config.host_slots, seed),
      file_(config.file_records, seed),
      tokens_(static_cast<size_t>(config.host_slots) * block_size_),
      writing_(static_cast<size_t>(config.host_slots)),
      from_file_(static_cast<size_t>(config.host_slots)),
      blocks_(static_cast<size_t>(num_blocks)),
      cost_(block_size) {}

void Tiers::restore(std::span<const StoredBlock> oldest_first) {
  for (const StoredBlock& stored : oldest_first) {
    if (const int old = file_.find(stored.key); old != SlotIndex::kNone) file_.erase(old);
    file_.assign(stored.record, stored.key);
  }
}

std::span<const Token> Tiers::slice(std::span<const Token> tokens, size_t i) const {
  return tokens.subspan(i * block_size_, block_size_);
}

std::span<const Token> Tiers::tokens_of(int slot) const {
  return slice(tokens_, static_cast<size_t>(slot));
}

int Tiers::find_host(const BlockKey& key, std::span<const Token> tokens) const {
  const int slot = host_.find(key);
  return slot != SlotIndex::kNone && std::ranges::equal(tokens_of(slot), tokens) ? slot
                                                                                 : SlotIndex::kNone;
}

std::vector<int> Tiers::ready(const Text& text) {
  std::vector<int> slots;
  for (size_t i = text.from; i < text.keys.size(); ++i) {
    const int slot = find_host(text.keys[i], slice(text.tokens, i));
    if (slot == SlotIndex::kNone || !host_.ready(slot)) break;
    slots.push_back(slot);
  }
  if (slots.empty() || cost_.copy_pays()) return slots;
  ++stats_.recomputed;
  return {};
}

bool Tiers::fetch(const Text& text, size_t& asked) {
  bool awaited = false;
  std::vector<int> found;  // pinned meanwhile: what is fetched must not push out what comes before
  for (size_t i = text.from; i < text.keys.size(); ++i) {
    const auto tokens = slice(text.tokens, i);
    int slot = find_host(text.keys[i], tokens);
    if (slot == SlotIndex::kNone && i >= asked) slot = read(text.keys[i], tokens);
    if (slot == SlotIndex::kNone) break;
    if (!host_.ready(slot)) asked = std::max(asked, i + 1);
    awaited |= !host_.ready(slot);
    host_.pin(slot);
    host_.touch(slot);
    found.push_back(slot);
  }
  for (const int slot : found) host_.unpin(slot);
  return awaited;
}

// From the file, if it has the block and there is a slot for it.
int Tiers::read(const BlockKey& key, std::span<const Token> tokens) {
  const int record = file_.find(key);
  if (!usable_ || record == SlotIndex::kNone || !file_.ready(record)) return SlotIndex::kNone;
  if (!cost_.read_pays()) {
    ++stats_.recomputed;
    return SlotIndex::kNone;
  }
  const int slot = host_.put(key);
  if (slot == SlotIndex::kNone) {
    ++stats_.skipped;
    return slot;
  }
  std::ranges::copy(tokens, tokens_.begin() + std::ssize(tokens) * slot);
  file_.pin(record);
  start({.kind = TierJob::Kind::kRead, .slot = slot, .record = record, .key = key});
  return slot;
}

void Tiers::hold(int slot) {
  host_.pin(slot);
  now_.held.push_back(slot);
}

void Tiers::load(int slot, BlockId block) {
  loads_.push_back({.block = block, .slot = slot});
  ++stats_.loads;
  char& from_file = from_file_[static_cast<size_t>(slot)];
  (from_file ? stats_.file_tokens : stats_.host_tokens) += block_size_;
  from_file = false;
  host_.cool(slot);  // the device has it now; eviction will warm it up
}

bool Tiers::wanted_by_file(const BlockKey& key) const {
  return has_file() && usable_ && file_.find(key) == SlotIndex::kNone;
}

void Tiers::published(BlockId id, const BlockKey& key) {
  OnDevice& b = block(id);
  SKIFF_CHECK(!b.pending, "block {} was not forgotten", id);
  b = {.key = key, .pending = wanted_by_file(key)};
  if (!b.pending) return;
  pending_.push_back(id);
  ++num_pending_;
}

void Tiers::evicted(BlockId id, std::span<const Token> tokens) {
  OnDevice& b = block(id);
  num_pending_ -= std::exchange(b.pending, false);
  const bool to_file = wanted_by_file(b.key);
  int slot = find_host(b.key, tokens);
  if (slot != SlotIndex::kNone) {
    host_.touch(slot);
  } else if (config_.spill || to_file) {
    slot = save(id, tokens);
    stats_.skipped += slot == SlotIndex::kNone;
  }
  if (slot != SlotIndex::kNone && to_file) write_later(slot);
}

int Tiers::save(BlockId id, std::span<const Token> tokens) {
  const int slot = host_.put(block(id).key);
  if (slot == SlotIndex::kNone) return slot;
  now_.held.push_back(slot);
  std::ranges::copy(tokens, tokens_.begin() + std::ssize(tokens) * slot);
  host_.set_ready(slot);
  from_file_[static_cast<size_t>(slot)] = false;
  saves_.push_back({.block = id, .slot = slot});
  ++stats_.saves;
  return slot;
}

// Once the plan in the making is committed, so that the slot holds what it should.
void Tiers::write_later(int slot) {
  char& writing = writing_[static_cast<size_t>(slot)];
  if (writing || !host_.ready(slot)) return;
  writing = true;
  ++num_writing_;
  host_.pin(slot);
  now_.writes.push_back(slot);
}

void Tiers::finish(StepPlan& plan, const PrefixTree& tree) {
  const int most_writing = std::max(1, host_.size() / 2);  // the rest is for reads
  for (int n = 0; n < config_.saves_per_step && num_writing_ < most_writing && num_pending_ > 0;) {
    const BlockId id = pending_.front();
    OnDevice& b = block(id);
    if (b.pending && wanted_by_file(b.key)) {
      // A block that this plan loads is found here, and not saved before it is loaded.
      int slot = find_host(b.key, tree.tokens(id));
      if (slot == SlotIndex::kNone) {
        slot = save(id, tree.tokens(id));
        if (slot == SlotIndex::kNone) break;
        host_.cool(slot);
        ++n;
      }
      write_later(slot);
    }
    num_pending_ -= std::exchange(b.pending, false);
    pending_.pop_front();
  }
  plan.saves = std::exchange(saves_, {});
  plan.loads = std::exchange(loads_, {});
  if (now_.held.empty() && now_.writes.empty()) return;
  SKIFF_CHECK(!plan.empty() || now_.held.empty(), "slots are held by no plan");
  now_.step = plan.empty() ? plan.step - 1 : plan.step;  // an empty one is never committed
  flights_.push_back(std::exchange(now_, {}));
  if (flights_.back().step <= committed_) committed(committed_);
}

void Tiers::committed(uint64_t step) {
  committed_ = step;
  while (!flights_.empty() && flights_.front().step <= step) {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (const int slot : flight.held) host_.unpin(slot);
    for (const int slot : flight.writes) start_write(slot);
  }
}

void Tiers::start_write(int slot) {
  const BlockKey& key = host_.key(slot);
  const int record = file_.put(key);
  if (record != SlotIndex::kNone)
    return start({.kind = TierJob::Kind::kWrite, .slot = slot, .record = record, .key = key});
  ++stats_.skipped;
  writing_[static_cast<size_t>(slot)] = false;
  --num_writing_;
  host_.unpin(slot);
}

void Tiers::start(TierJob job) {
  job.id = ++last_job_;
  open_.emplace(job.id, job);
  const auto tokens = tokens_of(job.slot);
  job.tokens.assign(tokens.begin(), tokens.end());
  jobs_.push_back(std::move(job));
}

std::vector<TierJob> Tiers::take_jobs() { return std::exchange(jobs_, {}); }

void Tiers::done(const TierDone& answer) {
  const auto found = open_.find(answer.job);
  SKIFF_CHECK(found != open_.end(), "job {} was never started", answer.job);
  const TierJob job = std::move(found->second);
  open_.erase(found);
  if ((answer.ok || answer.late) && job.kind == TierJob::Kind::kRead) cost_.read(answer.seconds);
  stats_.failures += !answer.ok;
  if (job.kind == TierJob::Kind::kWrite)
    wrote(job, answer.ok);
  else
    has_read(job, answer);
}

void Tiers::wrote(const TierJob& job, bool ok) {
  if (ok)
    file_.set_ready(job.record);
  else
    file_.erase(job.record);
  stats_.writes += ok;
  file_.unpin(job.record);
  writing_[static_cast<size_t>(job.slot)] = false;
  --num_writing_;
  host_.unpin(job.slot);
}

void Tiers::has_read(const TierJob& job, const TierDone& answer) {
  const bool ok = answer.ok;
  ++answers_;
  stats_.reads += ok;
  from_file_[static_cast<size_t>(job.slot)] = ok;
  if (ok) {
    host_.set_ready(job.slot);
    file_.touch(job.record);
  } else {
    host_.erase(job.slot);
    if (!answer.late) file_.erase(job.record);
  }
  file_.unpin(job.record);
  host_.unpin(job.slot);
}

}  // namespace skiff
