// kv/tier_cost.h -- whether it is cheaper to bring a block from a lower tier or to compute it
// again, decided by what both were measured to take.
#pragma once

namespace skiff::kv {

// A mean that forgets: each new value weighs 1/16. 0 before the first.
class RecentMean {
 public:
  void add(double value) { mean_ += (mean_ == 0 ? 1.0 : 1.0 / 16) * (value - mean_); }
  void fade() { mean_ *= 1 - 1.0 / 64; }
  double value() const { return mean_; }

 private:
  double mean_ = 0;
};

// What computing a block takes, and what copying one from host memory takes, in seconds. What was
// never measured costs nothing, so a tier is used until it was measured to cost more than
// computing. Each time it is passed over for that its measured cost fades a little: after some
// hundred times it is used, and measured, again. Not thread-safe.
class TierCost {
 public:
  explicit TierCost(int block_size) : block_size_(block_size) {}

  // A step computed `rows` and copied `copies` blocks from or to host memory, which took
  // `copy_seconds` of its `seconds`; either may be 0: not measured. Steps with fewer rows than a
  // block has say nothing about what computing a block would take.
  void step(int rows, int copies, double seconds, double copy_seconds) {
    if (seconds <= 0) return;
    if (rows >= block_size_) row_.add((seconds - copy_seconds) / rows);
    if (copies > 0 && copy_seconds > 0) copy_.add(copy_seconds / copies);
  }

  // Returns true if a block is worth `fetch_seconds`, which bring it to host memory, and the copy
  // from there. If not, the cost of a copy has faded; that of the fetch is the caller's.
  bool pays(double fetch_seconds = 0) {
    const double cost = copy_.value() + fetch_seconds;
    if (row_.value() == 0 || cost <= row_.value() * block_size_) return true;
    copy_.fade();
    return false;
  }

 private:
  int block_size_;
  RecentMean row_, copy_;
};

}  // namespace skiff::kv
