// kv/block_source.h -- the tiers behind host memory: the cache's file, and any other store of
// blocks by key, such as a remote cache or the memory of a peer.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/block_key.h"
#include "kv/tier_cost.h"

namespace skiff::kv {

// The blocks that a sequence will fetch, from the first one that is neither on the device nor in
// host memory. Valid during the call only.
struct Expected {
  uint64_t owner = 0;                // the sequence
  std::span<const BlockKey> keys;    // the blocks, in order; the last one may be partial
  int tokens = 0;                    // that these blocks hold
  std::span<const Token> prompt;     // all tokens of the sequence
  const CacheSharing& sharing;       // that of the sequence
  const KvOrigin* origin = nullptr;  // see NewSequence; null: there is none
  int priority = 0;                  // that of the sequence
};

// The index of one source: which blocks it holds, which it should be given, and how long a fetch
// from it takes as measured. It holds numbers only. The bytes are moved by the source's TierIo
// (engine/tier_io.h), which gets jobs from Tiers.
//
// A fetch or a store begins when its job is made and ends when the job is answered; several may be
// under way at a time, but for one key never more than one. Not thread-safe.
class BlockSource {
 public:
  static constexpr int kNone = -1;
  virtual ~BlockSource() = default;

  // A source that can have blocks made, or kept, says so by expects(), and does it from expect()
  // until release(), which comes once, at the latest when the sequence ends.
  virtual bool expects() const { return false; }
  virtual void expect(const Expected& /*expected*/) {}
  virtual void release(uint64_t /*owner*/) {}

  // Returns true if a fetch of the block may begin.
  virtual bool has(const BlockKey& key) const = 0;
  // Returns the record that the job reads: a number by which the source finds the bytes. Requires
  // has(key).
  virtual int begin_fetch(const BlockKey& key) = 0;
  virtual void end_fetch(int record, const TierDone& answer) = 0;

  // Whether partial blocks (block_key.h) are stored in it, or come from it. A source that keeps
  // blocks for whoever may come takes none: they are of use to one prompt only.
  virtual bool takes_partial() const { return false; }
  // Returns true if a store of the block may begin; always false for a source that is only read.
  virtual bool wants(const BlockKey& key) const = 0;
  // Returns the record that the job writes; kNone where there is no room now. Requires wants(key).
  virtual int begin_store(const BlockKey& key) = 0;
  virtual void end_store(int record, bool ok) = 0;

  // A source that is out of use gets no jobs, but its index is kept.
  bool usable() const { return usable_; }
  void set_usable(bool usable) { usable_ = usable; }

  double fetch_seconds() const { return fetch_.value(); }  // for one block, see TierCost
  void fetch_took(double seconds) {
    if (seconds > 0) fetch_.add(seconds);
  }
  void fade() { fetch_.fade(); }

 private:
  bool usable_ = true;
  RecentMean fetch_;
};

// In the order of preference. A job names its source by the place in this list.
using BlockSources = std::vector<std::unique_ptr<BlockSource>>;

}  // namespace skiff::kv
