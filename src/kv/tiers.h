// kv/tiers.h -- where blocks live below the device: slots of host memory, and records of a file
// behind them. Numbers only: the copies ride in step plans, and the file's reads and writes are
// jobs for whoever owns it, so nothing here waits, fails or knows of bytes.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/prefix_tree.h"
#include "kv/slot_index.h"
#include "kv/tier_cost.h"

namespace skiff {

struct TierConfig {
  int host_slots = 0;    // 0: there are no lower tiers
  int file_records = 0;  // 0: there is no file
  // Blocks evicted from the device stay in host memory. false: slots only carry what goes to the
  // file and comes from it.
  bool spill = true;
  int saves_per_step = 16;  // most blocks that a step copies only for the file's sake
  std::string fingerprint;  // see block_key.h
};

// A record that was in the file at the start.
struct StoredBlock {
  int record = 0;
  BlockKey key{};
};

// Read a record into a slot, or write a slot to a record. `key` and `tokens` say which block it
// must be. Answered by a TierDone with the same id; not ok: the slot's contents mean nothing.
struct TierJob {
  enum class Kind { kRead, kWrite };
  uint64_t id = 0;
  Kind kind = Kind::kRead;
  int slot = 0, record = 0;
  BlockKey key{};
  std::vector<Token> tokens;
};

// Since the start.
struct TierStats {
  uint64_t host_tokens = 0, file_tokens = 0;  // tokens served from host memory, and from the file
  uint64_t saves = 0, loads = 0;              // blocks copied from and to the device
  uint64_t reads = 0, writes = 0;             // of the file, in blocks, that went well
  uint64_t failures = 0;                      // those that failed or came late: misses, no more
  uint64_t skipped = 0;                       // blocks not kept or fetched for want of a free slot
  uint64_t recomputed = 0;  // times that cached blocks were computed again because that is cheaper
};

// Three facts make this right without waiting. Steps run in the order planned, so a slot may be
// read by a plan as soon as an earlier or the same one saves to it. A slot that a plan names is
// pinned until that plan is committed, so the file's thread and the device never meet in one. And
// a slot that the file's thread uses is pinned until it has answered.
//
// A write to the file begins when a block is published: it is saved to a slot by the next plan, at
// most saves_per_step of them, and written when that plan is committed. Such a slot is the first
// to be used again once written, unless its block has left the device by then.
//
// Not thread-safe.
class Tiers {
 public:
  Tiers(const TierConfig& config, int num_blocks, int block_size, uint64_t seed);
  void restore(std::span<const StoredBlock> oldest_first);
  const std::string& fingerprint() const { return config_.fingerprint; }

  // What a text begins with: keys and tokens of its leading blocks, of which those before `from`
  // lie on the device already.
  struct Text {
    std::span<const BlockKey> keys;
    std::span<const Token> tokens;
    size_t from = 0;
  };
  // Slots of the blocks that come next, as far as host memory has them now; none if it is cheaper
  // to compute them.
  std::vector<int> ready(const Text& text);
  // Ask the file for the blocks that come next and are not in host memory, but for none before
  // `asked`, which moves past those awaited, and for none if it is cheaper to compute them. True if
  // an answer is awaited that may lengthen ready().
  bool fetch(const Text& text, size_t& asked);
  uint64_t answers() const { return answers_; }  // to reads, so far

  void hold(int slot);                 // until the plan in the making is committed
  void load(int slot, BlockId block);  // in that plan; the slot is held
  // The tree has come to know a block.
  void published(BlockId block, const BlockKey& key);
  // The tree is about to forget a block, which may be overwritten from the next rows on.
  void evicted(BlockId block, std::span<const Token> tokens);
  // The last word on a plan.
  void finish(StepPlan& plan, const PrefixTree& tree);
  void committed(uint64_t step);
  void measured(int rows, int copies, double seconds, double copy_seconds) {
    cost_.step(rows, copies, seconds, copy_seconds);
  }
  void done(const TierDone& answer);
  std::vector<TierJob> take_jobs();  // to be started now, in this order

  // A file out of use is asked for nothing; what it holds is remembered.
  void set_usable(bool usable) { usable_ = usable; }

  bool has_file() const { return file_.size() > 0; }
  bool owes_saves() const { return num_pending_ > 0; }
  bool awaits_answer() const { return !open_.empty(); }
  const TierStats& stats() const { return stats_; }

 private:
  struct Flight {
    uint64_t step = 0;
    std::vector<int> held, writes;  // slots
  };
  struct OnDevice {
    BlockKey key{};
    bool pending = false;  // to be saved for the file
  };

  std::span<const Token> slice(std::span<const Token> tokens, size_t i) const;
  std::span<const Token> tokens_of(int slot) const;
  int find_host(const BlockKey& key, std::span<const Token> tokens) const;
  int read(const BlockKey& key, std::span<const Token> tokens);
  int save(BlockId block, std::span<const Token> tokens);
  void write_later(int slot);
  void start_write(int slot);
  void start(TierJob job);
  void wrote(const TierJob& job, bool ok);
  void has_read(const TierJob& job, const TierDone& answer);
  bool wanted_by_file(const BlockKey& key) const;
  OnDevice& block(BlockId id) { return blocks_[static_cast<size_t>(id)]; }

  const TierConfig config_;
  size_t block_size_;
  SlotIndex host_, file_;
  std::vector<Token> tokens_;              // [host_slots, block_size]
  std::vector<char> writing_, from_file_;  // [host_slots]
  std::vector<OnDevice> blocks_;           // [num_blocks]
  std::deque<BlockId> pending_;  // ids with OnDevice::pending, oldest first; may hold stale ids
  int num_pending_ = 0, num_writing_ = 0;
  std::vector<BlockCopy> saves_, loads_;  // of the plan in the making, as is `now_`
  Flight now_;
  std::deque<Flight> flights_;
  std::vector<TierJob> jobs_;
  std::unordered_map<uint64_t, TierJob> open_;  // without tokens
  uint64_t last_job_ = 0, answers_ = 0, committed_ = 0;
  bool usable_ = true;  // the file
  TierCost cost_;
  TierStats stats_;
};

}  // namespace skiff
