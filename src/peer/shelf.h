// peer/shelf.h -- the blocks that an instance has ready for others, in host memory of a fixed size.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/block_source.h"
#include "kv/place_index.h"
#include "peer/block_sum.h"
#include "peer/resident_ahead.h"
#include "peer/shared_memory.h"

namespace skiff::peer {

// Places are reused from the coldest, but never one whose block is leased or lent. Thread-safe: the
// engine reserves and settles, the threads that move bytes fill, and the server leases and borrows.
class Shelf {
 public:
  static constexpr int kNone = kv::PlaceIndex::kNone;
  // `shareable`: other processes may be given the memory to read, where the system can do that.
  Shelf(size_t block_bytes, int places, uint64_t seed, bool shareable = false);
  size_t block_bytes() const { return block_bytes_; }
  int memory_file() const { return memory_.file(); }  // see ShareableMemory

  // Returns true if the block is here or is being written.
  bool has(const kv::BlockKey& key) const;
  // Returns a place for a block; kNone if every place is leased, lent or being written.
  int reserve(const kv::BlockKey& key);
  // Copies block_bytes() bytes to a place that was reserved, and takes their checksum.
  void fill(int place, std::span<const std::byte> bytes);
  void settle(int place, bool ok);  // ends what reserve() began

  // Keeps the block, from now on or from when it comes, until unlease() was called as often.
  void lease(const kv::BlockKey& key);
  void unlease(const kv::BlockKey& key);
  size_t leased() const;  // number of keys that have a lease

  // A block that stays where it is while this object lives, at most as long as the shelf.
  class Loan {
   public:
    Loan(Loan&& other) noexcept
        : shelf_(std::exchange(other.shelf_, nullptr)), place_(other.place_), sum_(other.sum_) {}
    Loan& operator=(Loan&& other) noexcept {
      std::swap(shelf_, other.shelf_);
      std::swap(place_, other.place_);
      std::swap(sum_, other.sum_);
      return *this;
    }
    ~Loan();
    std::span<const std::byte> bytes() const;
    int place() const { return place_; }     // bytes() begin at that many blocks into the memory
    const Sum& sum() const { return sum_; }  // that of bytes()

   private:
    friend class Shelf;
    Loan(Shelf* shelf, int place, Sum sum) : shelf_(shelf), place_(place), sum_(sum) {}
    Shelf* shelf_;
    int place_;
    Sum sum_;
  };
  // Returns the block, or nothing if it is not here.
  std::optional<Loan> lend(const kv::BlockKey& key);

  // The engine's thread calls it when a block has become readable (true), or will not because there
  // is no place (false). It is set before blocks come.
  using Listener = std::function<void(const kv::BlockKey& key, bool here)>;
  void on_change(Listener listener) { listener_ = std::move(listener); }

 private:
  std::span<std::byte> at(int place) const {
    return memory_.bytes().subspan(static_cast<size_t>(place) * block_bytes_, block_bytes_);
  }

  const size_t block_bytes_;
  static constexpr size_t kPlacesAhead = 256;  // some prompts of thousands of tokens
  const ShareableMemory memory_;
  ResidentAhead ahead_{memory_.bytes(), kPlacesAhead* block_bytes_};
  Listener listener_;
  mutable std::mutex mutex_;  // guards the members below
  kv::PlaceIndex index_;
  std::unordered_map<kv::BlockKey, int, kv::BlockKeyHash> leases_;
  std::vector<Sum> sums_;  // [places]
};

// The shelf as the cache sees it: blocks are stored in it and never fetched back.
class ShelfSource final : public kv::BlockSource {
 public:
  explicit ShelfSource(std::shared_ptr<Shelf> shelf) : shelf_(std::move(shelf)) {}
  bool has(const kv::BlockKey&) const override { return false; }
  int begin_fetch(const kv::BlockKey&) override { return kNone; }
  void end_fetch(int, const TierDone&) override {}
  bool takes_partial() const override { return true; }
  bool wants(const kv::BlockKey& key) const override { return !shelf_->has(key); }
  int begin_store(const kv::BlockKey& key) override { return shelf_->reserve(key); }
  void end_store(int record, bool ok) override { shelf_->settle(record, ok); }

 private:
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace skiff::peer
