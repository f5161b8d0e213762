// peer/remote_source.h -- the blocks that other instances have, or are making, for sequences of
// this one.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "kv/block_source.h"
#include "peer/block_client.h"

namespace skiff::peer {

// A block is there if a sequence that waits expects it; the number of a fetch's record is that of
// the lease. Sequences that expect the same blocks share a lease. Where several leases have a
// block, the newest is asked for it, and the others are left when that ends. Like every
// BlockSource, it is the engine thread's.
class RemoteSource final : public kv::BlockSource {
 public:
  // Sequences without an origin expect nothing, unless `asks`: a server is then asked to compute
  // their prompts.
  RemoteSource(std::shared_ptr<BlockClient> client, bool asks, uint64_t seed)
      : client_(std::move(client)), asks_(asks), by_key_(0, kv::BlockKeyHash{seed}) {}

  bool expects() const override { return true; }
  bool takes_partial() const override { return true; }
  void expect(const kv::Expected& expected) override;
  void release(uint64_t owner) override;
  bool has(const kv::BlockKey& key) const override { return by_key_.contains(key); }
  int begin_fetch(const kv::BlockKey& key) override { return by_key_.at(key).back(); }
  void end_fetch(int record, const TierDone& answer) override;
  bool wants(const kv::BlockKey&) const override { return false; }
  int begin_store(const kv::BlockKey&) override { return kNone; }
  void end_store(int, bool) override {}

 private:
  struct Lease {
    std::vector<kv::BlockKey> keys;
    int owners = 0;
  };
  bool has_in(int lease, const kv::BlockKey& key) const;
  int lease_of_all(std::span<const kv::BlockKey> keys) const;
  void forget_keys(int number, Lease& lease);

  const std::shared_ptr<BlockClient> client_;
  const bool asks_;
  int last_ = 0;  // number of the newest lease
  std::unordered_map<int, Lease> leases_;
  std::unordered_map<uint64_t, int> owners_;  // the lease of each owner
  // The leases that have a block, at least one, the newest last.
  std::unordered_map<kv::BlockKey, std::vector<int>, kv::BlockKeyHash> by_key_;
};

}  // namespace skiff::peer
