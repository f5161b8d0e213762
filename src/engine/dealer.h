// engine/dealer.h -- decides which of several replicas of an engine gets a request.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/seen_blocks.h"
#include "message/request.h"

namespace skiff::engine {

// A request goes where it is done soonest, as far as tokens tell. First come replicas that have a
// place in the batch and free blocks for its prompt. Among them the one with the least sum counts:
// the tokens of the prompt that its prefix cache lacks, the prompt tokens that wait or are computed
// there, and the tokens of the sequences that decode there. So a cached prefix draws a request as
// long as the replica is ahead of the others by fewer tokens than the prefix saves: a prompt that
// all requests begin with does not gather them all in one place, and a replica that has just
// become idle is not flooded. Where sums are equal, more free blocks decide, then fewer sequences.
//
// Nothing is dealt in turn: prompts of very different lengths make turns unfair.
//
// Thread-safe.
class Dealer {
 public:
  struct Options {
    int replicas = 1;
    int block_size = 64;
    size_t blocks = 0;  // blocks of one replica's prefix cache, with its lower tiers; 0: no cache
    int max_seqs = 1;   // places in the batch of one replica
    uint64_t seed = 0;  // see block_names()
  };
  explicit Dealer(const Options& options);

  // Returns the replica for the sequences of one request, which has at least one, and books them
  // there: NewSequence::replica, if there is one. `blocks_free` has the blocks of each replica that
  // are free or could be evicted.
  int deal(std::span<const NewSequence> sequences, std::span<const int> blocks_free);
  // Returns where a sequence runs that has not ended.
  std::optional<int> replica_of(SeqId id) const;
  // The prefix cache of this replica was emptied.
  void forget(int replica);
  // Books what the event tells. Returns false if its sequence is not known, or has ended.
  bool hear(const Event& event);

  struct Load {
    int64_t queued = 0;   // prompt tokens to compute before the first token of their sequences
    int64_t running = 0;  // tokens of the sequences that have their first token
    int sequences = 0;
    bool operator==(const Load&) const = default;
  };
  Load load(int replica) const;

 private:
  struct Booking {
    int replica = 0;
    int64_t prompt = 0, queued = 0;  // `queued`: what of the prompt is booked as Load::queued
    int64_t running = 0;             // what is booked as Load::running
  };
  struct Replica {
    Load load;
    SeenBlocks seen;
  };
  struct Rank;
  Rank rank_of(const Replica& replica, std::span<const NewSequence> sequences,
               std::span<const BlockName> names, int blocks_free) const;
  void book(int index, const NewSequence& sequence, std::span<const BlockName> names);

  const Options options_;
  mutable std::mutex mutex_;
  std::vector<Replica> replicas_;                // guarded by mutex_
  std::unordered_map<SeqId, Booking> bookings_;  // guarded by mutex_
};

}  // namespace skiff::engine
