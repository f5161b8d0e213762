#include "peer/remote_source.h"

#include <algorithm>

namespace skiff::peer {

bool RemoteSource::has_in(int lease, const kv::BlockKey& key) const {
  const auto found = by_key_.find(key);
  return found != by_key_.end() && std::ranges::count(found->second, lease) > 0;
}

// Returns the newest lease that has all of these blocks, or kNone.
int RemoteSource::lease_of_all(std::span<const kv::BlockKey> keys) const {
  const auto last = by_key_.find(keys.back());
  if (last == by_key_.end()) return kNone;
  const std::vector<int>& leases = last->second;
  const auto whole = std::find_if(leases.rbegin(), leases.rend(), [&](int lease) {
    return std::ranges::all_of(keys, [&](const kv::BlockKey& key) { return has_in(lease, key); });
  });
  return whole == leases.rend() ? kNone : *whole;
}

void RemoteSource::expect(const kv::Expected& expected) {
  if (expected.keys.empty() || (expected.origin == nullptr && !asks_)) return;
  if (const int known = lease_of_all(expected.keys); known != kNone) {
    ++leases_.at(known).owners;
    owners_.emplace(expected.owner, known);
    return;
  }
  last_ = last_ == 1 << 30 ? 1 : last_ + 1;
  Lease& lease = leases_[last_];
  lease.keys.assign(expected.keys.begin(), expected.keys.end());
  lease.owners = 1;
  owners_.emplace(expected.owner, last_);
  for (const kv::BlockKey& key : lease.keys) by_key_[key].push_back(last_);

  Open wish;
  wish.lease = static_cast<uint64_t>(last_);
  wish.priority = expected.priority;
  wish.keys = lease.keys;
  const auto tokens = static_cast<size_t>(expected.tokens);
  if (expected.origin != nullptr) return client_->open(std::move(wish), tokens, *expected.origin);
  // All of it, as a router sends it: what follows its last full block is handed over, too.
  wish.prompt.assign(expected.prompt.begin(), expected.prompt.end());
  wish.salt = expected.sharing.salt;
  wish.extras = expected.sharing.extras;
  client_->open(std::move(wish), tokens, std::nullopt);
}

void RemoteSource::forget_keys(int number, Lease& lease) {
  for (const kv::BlockKey& key : lease.keys) {
    const auto found = by_key_.find(key);
    std::erase(found->second, number);
    if (found->second.empty()) by_key_.erase(found);
  }
  lease.keys.clear();
}

void RemoteSource::release(uint64_t owner) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  const int number = found->second;
  owners_.erase(found);
  Lease& lease = leases_.at(number);
  if (--lease.owners > 0) return;
  forget_keys(number, lease);
  leases_.erase(number);
  client_->close(static_cast<uint64_t>(number));
}

// The blocks behind one that did not come are of no use.
void RemoteSource::end_fetch(int record, const TierDone& answer) {
  const auto found = leases_.find(record);
  if (!answer.ok && found != leases_.end()) forget_keys(record, found->second);
}

}  // namespace skiff::peer
