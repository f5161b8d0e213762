// kv/tiers.h -- the tiers of the cache below the device: host memory, and the sources behind it,
// such as the cache's file. It holds numbers only: step plans carry the copies, and fetches and
// stores are jobs for a TierIo, so nothing here waits, fails or touches bytes.
#pragma once
#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/block_source.h"
#include "kv/place_index.h"
#include "kv/prefix_tree.h"
#include "kv/tier_cost.h"

namespace skiff::kv {

struct TierConfig {
  int host_blocks = 0;  // blocks that host memory holds; 0: there are no lower tiers
  // Blocks evicted from the device stay in host memory. false: host memory only carries what goes
  // to the sources and comes from them.
  bool spill = true;
  int saves_per_step = 16;  // the most blocks that a step copies only because sources want them
  std::string fingerprint;  // names the model and how it is computed (block_key.h)
  // Blocks are brought back even where computing them is measured to be cheaper.
  bool always_pays = false;
  // A block of the device that a sequence finds is stored again in the sources that lack it.
  bool stores_found = false;
  // Somebody waits for what is stored: saves are planned before further rows, see Scheduler.
  bool hands_over = false;
};

// Reads a record of a source into a host block, or writes a host block to a record. `key` and
// `tokens`, fewer than a block has room for if it is partial, identify the block. Answered by a
// TierDone with the same id; if that is not ok, the contents of the host block are undefined.
struct TierJob {
  enum class Kind { kRead, kWrite };
  uint64_t id = 0;
  Kind kind = Kind::kRead;
  int source = 0;  // its place in the list of BlockSources
  int host_block = 0, record = 0;
  BlockKey key{};
  std::vector<Token> tokens;
};

// Counters since the start.
struct TierStats {
  uint64_t host_tokens = 0, file_tokens = 0;  // tokens served from host memory, and from sources
  uint64_t saves = 0, loads = 0;              // blocks copied from and to the device
  uint64_t reads = 0, writes = 0;             // blocks fetched from sources and stored in them
  uint64_t failures = 0;                      // jobs that failed or came late; they are misses
  uint64_t skipped = 0;     // blocks not kept or fetched for want of a free host block
  uint64_t recomputed = 0;  // times that cached blocks were recomputed because that was cheaper
  int waiting = 0;          // sequences that wait now for room in host memory

  TierStats& operator+=(const TierStats& other) {
    host_tokens += other.host_tokens;
    file_tokens += other.file_tokens;
    saves += other.saves;
    loads += other.loads;
    reads += other.reads;
    writes += other.writes;
    failures += other.failures;
    skipped += other.skipped;
    recomputed += other.recomputed;
    waiting += other.waiting;
    return *this;
  }
};

// Three facts make this correct without waiting. Steps run in the order planned, so a host block
// may be read by a plan as soon as an earlier or the same one saves to it. A host block that a plan
// names is pinned until that plan is committed, so a source and the device never meet in one. And a
// host block that a source uses is pinned until the source has answered.
//
// A store begins when a block is published: it is saved to host memory by the next plan, at most
// saves_per_step of them, and stored when that plan is committed. Such a host block is the first to
// be used again once stored, unless its block has left the device by then.
//
// Not thread-safe.
class Tiers {
 public:
  Tiers(const TierConfig& config, int num_blocks, int block_size, uint64_t seed,
        BlockSources sources);
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;
  const std::string& fingerprint() const { return config_.fingerprint; }

  // The beginning of a text: keys and tokens of its leading blocks, of which the last may be
  // partial. Those before block `from` are on the device already.
  struct Text {
    std::span<const BlockKey> keys;
    std::span<const Token> tokens;
    size_t from = 0;
  };
  // Returns the host blocks that continue the text, as far as host memory has it now; none if it is
  // cheaper to compute it.
  std::vector<int> ready(const Text& text);
  // What a sequence has of host memory: the host blocks that it has found or fetched, whose places
  // nobody else's blocks take until let_go(), which its end implies, and the room for all that it
  // fetches, or its place among those that wait for room. The tiers must outlive it.
  class Kept {
   public:
    Kept() = default;
    Kept(Kept&& other) noexcept { *this = std::move(other); }
    Kept& operator=(Kept&& other) noexcept {
      std::swap(tiers_, other.tiers_);
      hosts_.swap(other.hosts_);
      std::swap(room_, other.room_);
      std::swap(waits_, other.waits_);
      return *this;
    }
    ~Kept() { let_go(); }
    void let_go();

   private:
    friend class Tiers;
    Tiers* tiers_ = nullptr;  // null: it has nothing
    std::vector<int> hosts_;  // pinned
    int room_ = 0;            // host blocks that the whole text takes; 0: it has no room
    bool waits_ = false;
  };
  // Fetches the following blocks that are not in host memory, but none before `asked`, which
  // advances past those awaited, and none that are cheaper to compute. Sequences fetch at the same
  // time only if host memory has room for all that they keep; others wait. Returns what is awaited
  // and may lengthen ready(), for awaits(): the job of the last block, or room; 0 if nothing is.
  uint64_t fetch(const Text& text, size_t& asked, Kept& kept);
  bool awaits(uint64_t what) const { return what == kRoom ? turned_away_ : open_.contains(what); }

  // Makes `kept` those of these host blocks, which it pins, until let_go().
  void keep(Kept& kept, std::span<const int> hosts);
  void hold(int host);                 // pins it until the plan that is being made is committed
  void load(int host, BlockId block);  // adds a load to that plan; the host block is held
  // Whether that plan loads the block, and whether it loads any.
  bool loads(BlockId block) const { return blocks_[static_cast<size_t>(block)].loads; }
  bool loads_any() const { return !loads_.empty(); }
  int tokens_in(int host) const { return host_blocks_[static_cast<size_t>(host)].tokens; }
  // Called when a block has entered the prefix tree.
  void published(BlockId block, const BlockKey& key);
  // Called before the tree forgets a block, which may be overwritten by the next rows.
  void evicted(BlockId block, std::span<const Token> tokens);
  // Called when a sequence has found a block of the tree on the device.
  void found(BlockId block);
  // A partial block that is saved and stored like those that are published. It is in no tree, so
  // the caller keeps it as it is until take_saved() names it.
  struct Partial {
    BlockId block = 0;
    BlockKey key{};
    std::vector<Token> tokens;
  };
  // Whether partial blocks come from a source, and whether one wants this one.
  bool fetches_partial() const {
    return std::ranges::any_of(
        sources_, [](const auto& each) { return each->expects() && each->takes_partial(); });
  }
  bool wants_partial(const BlockKey& key) const;
  void owe(Partial partial) { owed_.push_back(std::move(partial)); }
  // Saves all that are owed with the plan that is being made. Those for which host memory has no
  // place are not kept.
  void save_owed();
  // Returns the blocks that are owed no more: rows planned from now on may overwrite them.
  std::vector<BlockId> take_saved() { return std::exchange(saved_, {}); }
  // See BlockSource.
  bool expects() const {
    return std::ranges::any_of(sources_, [](const auto& source) { return source->expects(); });
  }
  void expect(const Expected& expected) {
    for (const auto& source : sources_) source->expect(expected);
  }
  void release(uint64_t owner) {
    for (const auto& source : sources_) source->release(owner);
  }
  // Completes a plan with its saves and loads.
  void finish(StepPlan& plan, const PrefixTree& tree);
  void committed(uint64_t step);
  // Records what a step with these numbers of rows and copied blocks took, see TierCost.
  void measured(int rows, int copies, double seconds, double copy_seconds) {
    cost_.step(rows, copies, seconds, copy_seconds);
  }
  double copy_seconds() const { return cost_.copy_seconds(); }  // see TierCost
  void done(const TierDone& answer);
  std::vector<TierJob> take_jobs();  // jobs to be started now, in this order
  void source_is(const TierState& state);
  // Forgets all blocks of host memory and those that were to be saved; those of sources stay, under
  // the names of the fingerprint until now. CHECKs at_rest().
  void renew(const std::string& fingerprint);

  bool empty() const { return host_.size() == 0; }  // whether there are no lower tiers
  bool has_sources() const { return !sources_.empty(); }
  bool hands_over() const { return config_.hands_over; }
  bool owes_saves() const { return num_pending_ > 0 || !owed_.empty(); }
  bool awaits_answer() const { return !open_.empty(); }
  // Whether no job is under way and no plan in flight, as renew() needs it.
  bool at_rest() const { return open_.empty() && jobs_.empty() && flights_.empty(); }
  const TierStats& stats() const { return stats_; }

 private:
  struct Store {
    int host = 0, source = 0;
  };
  struct Flight {
    uint64_t step = 0;
    std::vector<int> held;  // host blocks
    std::vector<Store> stores;
    int room = 0;  // host blocks of sequences that have let go of them
  };
  struct OnDevice {
    BlockKey key{};
    bool pending = false;  // to be saved because a source wants it
    bool loads = false;    // loaded by the plan that is being made
  };
  struct HostBlock {
    uint64_t storing = 0;  // a bit for each source that the block will be stored in
    bool fetched = false;  // came from a source and has not been loaded since
    int tokens = 0;        // that it holds; fewer than a block has room for in a partial one
    uint64_t job = 0;      // the fetch that fills it, while it is not ready
  };

  std::span<const Token> slice(std::span<const Token> tokens, size_t i) const;
  std::span<const Token> tokens_of(int host) const;
  int find_host(const BlockKey& key, std::span<const Token> tokens) const;
  int fetch_one(int from, const BlockKey& key, std::span<const Token> tokens);
  int affordable_source(const BlockKey& key);
  bool take_room(Kept& kept, size_t blocks);
  uint64_t wait_for_room(Kept& kept);
  void return_room(int room);
  void room_is_free(int room);
  int put(const BlockKey& key, std::span<const Token> tokens);
  int save(BlockId block, const BlockKey& key, std::span<const Token> tokens);
  bool save_one_owed();
  void store_later(int host);
  void start_store(const Store& store);
  void end_store(const Store& store);
  void start(TierJob job);
  void has_fetched(const TierJob& job, const TierDone& answer);
  bool wanted(const BlockKey& key) const;
  bool pays(double fetch_seconds = 0) { return config_.always_pays || cost_.pays(fetch_seconds); }
  BlockSource& source(int i) { return *sources_[static_cast<size_t>(i)]; }
  OnDevice& block(BlockId id) { return blocks_[static_cast<size_t>(id)]; }
  HostBlock& host_block(int host) { return host_blocks_[static_cast<size_t>(host)]; }

  // What fetch() returns for a sequence that waits for room. No job has this number.
  static constexpr uint64_t kRoom = std::numeric_limits<uint64_t>::max();

  TierConfig config_;  // only renew() changes it, and only the fingerprint
  size_t block_size_;
  PlaceIndex host_;
  BlockSources sources_;
  std::vector<Token> tokens_;           // [host_blocks, block_size]
  std::vector<HostBlock> host_blocks_;  // [host_blocks]
  std::vector<OnDevice> blocks_;        // [num_blocks]
  std::deque<BlockId> pending_;  // ids with OnDevice::pending, oldest first; may hold stale ids
  int num_pending_ = 0, num_storing_ = 0;
  std::deque<Partial> owed_;              // oldest first
  std::vector<BlockId> saved_;            // see take_saved()
  std::vector<BlockCopy> saves_, loads_;  // for the plan that is being made, like `now_`
  Flight now_;
  std::deque<Flight> flights_;
  std::vector<TierJob> jobs_;
  std::unordered_map<uint64_t, TierJob> open_;  // jobs by id, without tokens
  uint64_t last_job_ = 0, committed_ = 0;
  int room_taken_ = 0;        // host blocks
  bool turned_away_ = false;  // somebody had to wait since room was given back last
  TierCost cost_;
  TierStats stats_;
};

}  // namespace skiff::kv
