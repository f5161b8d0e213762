#include "peer/shelf.h"

#include "base/check.h"

namespace skiff::peer {

Shelf::Shelf(size_t block_bytes, int places, uint64_t seed, bool shareable)
    : block_bytes_(block_bytes),
      memory_(static_cast<size_t>(places) * block_bytes, shareable),
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
  if (place != kNone) ahead_.in_use(static_cast<size_t>(place + 1) * block_bytes_);
  return place;
}

// Only the writer touches a place that is not ready, so the copy needs no lock.
void Shelf::fill(int place, std::span<const std::byte> bytes) {
  const Sum sum = copy_and_sum(bytes, at(place));
  std::lock_guard lock(mutex_);
  sums_[static_cast<size_t>(place)] = sum;
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

std::optional<Shelf::Loan> Shelf::lend(const kv::BlockKey& key) {
  std::lock_guard lock(mutex_);
  const int place = index_.find(key);
  if (place == kNone || !index_.ready(place)) return std::nullopt;
  index_.pin(place);
  return Loan(this, place, sums_[static_cast<size_t>(place)]);
}

Shelf::Loan::~Loan() {
  if (shelf_ == nullptr) return;
  std::lock_guard lock(shelf_->mutex_);
  shelf_->index_.unpin(place_);
}

std::span<const std::byte> Shelf::Loan::bytes() const { return shelf_->at(place_); }

}  // namespace skiff::peer
