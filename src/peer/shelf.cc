#include "peer/shelf.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace skiff::peer {

Block checksummed(uint64_t job, const kv::BlockKey& key, std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.job = job, .key = key, .low = hash.low64, .high = hash.high64};
}

// The memory is not written to here, so it becomes resident as blocks come.
Shelf::Shelf(size_t block_bytes, int places, uint64_t seed)
    : block_bytes_(block_bytes),
      memory_(new std::byte[static_cast<size_t>(places) * block_bytes]),
      index_(places, seed),
      leases_(0, kv::BlockKeyHash{seed}),
      sums_(static_cast<size_t>(places)) {}

bool Shelf::has(const kv::BlockKey& key) const {
  std::lock_guard lock(mutex_);
  return index_.find(key) != kNone;
}

int Shelf::reserve(const kv::BlockKey& key) {
  int place = kNone;
  {
    std::lock_guard lock(mutex_);
    place = index_.put(key);
    if (place != kNone && leases_.contains(key)) index_.pin(place);
  }
  if (place == kNone && listener_) listener_(key, false);
  return place;
}

// Only the writer touches a place that is not ready, so the copy needs no lock.
void Shelf::fill(int place, std::span<const std::byte> bytes) {
  SKIFF_CHECK_EQ(bytes.size(), block_bytes_);
  std::ranges::copy(bytes, at(place));
  const Block sum = checksummed(0, {}, bytes);
  std::lock_guard lock(mutex_);
  sums_[static_cast<size_t>(place)] = {sum.low, sum.high};
}

void Shelf::settle(int place, bool ok) {
  kv::BlockKey key;
  {
    std::lock_guard lock(mutex_);
    key = index_.key(place);
    if (ok) {
      index_.set_ready(place);
    } else {
      index_.erase(place);
      if (leases_.contains(key)) index_.unpin(place);
    }
    index_.unpin(place);
  }
  if (listener_) listener_(key, ok);
}

void Shelf::lease(const kv::BlockKey& key) {
  std::lock_guard lock(mutex_);
  if (++leases_[key] > 1) return;
  if (const int place = index_.find(key); place != kNone) {
    index_.pin(place);
    index_.touch(place);
  }
}

void Shelf::unlease(const kv::BlockKey& key) {
  std::lock_guard lock(mutex_);
  const auto found = leases_.find(key);
  SKIFF_CHECK(found != leases_.end());
  if (--found->second > 0) return;
  leases_.erase(found);
  if (const int place = index_.find(key); place != kNone) index_.unpin(place);
}

size_t Shelf::leased() const {
  std::lock_guard lock(mutex_);
  return leases_.size();
}

// The place is pinned meanwhile, so that the engine need not wait for the copy.
bool Shelf::copy(uint64_t job, const kv::BlockKey& key, std::string& out) {
  int place = kNone;
  Sum sum;
  {
    std::lock_guard lock(mutex_);
    place = index_.find(key);
    if (place == kNone || !index_.ready(place)) return false;
    index_.pin(place);
    sum = sums_[static_cast<size_t>(place)];
  }
  write(Block{.job = job, .key = key, .low = sum.low, .high = sum.high}, out);
  out.append(reinterpret_cast<const char*>(at(place)), block_bytes_);
  std::lock_guard lock(mutex_);
  index_.unpin(place);
  return true;
}

}  // namespace skiff::peer
