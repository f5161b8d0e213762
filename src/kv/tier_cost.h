// kv/tier_cost.h -- decides by measured times whether it is cheaper to bring a block from a lower
// tier or to compute it again.
#pragma once

namespace skiff::kv {

// An exponential moving mean: each new value has weight 1/16. 0 before the first value.
class RecentMean {
 public:
  void add(double value) { mean_ += (mean_ == 0 ? 1.0 : 1.0 / 16) * (value - mean_); }
  void fade() { mean_ *= 1 - 1.0 / 64; }
  double value() const { return mean_; }

 private:
  double mean_ = 0;
};

// The time to compute a block and the time to copy one from host memory, in seconds. A time that
// was never measured counts as zero, so a tier is used until it is measured to be slower than
// computing. Each time that a tier is skipped for that reason its measured time decays a little:
// after some hundred times it is used, and measured, again. Not thread-safe.
class TierCost {
 public:
  explicit TierCost(int block_size) : block_size_(block_size) {}

  // Records a step that computed `rows` rows and copied `copies` blocks from or to host memory,
  // which took `copy_seconds` of its `seconds`; either time may be 0: not measured. Steps with
  // fewer rows than a block has are ignored for the time to compute a block.
  void step(int rows, int copies, double seconds, double copy_seconds) {
    if (seconds <= 0) return;
    if (rows >= block_size_) row_.add((seconds - copy_seconds) / rows);
    if (copies > 0 && copy_seconds > 0) copy_.add(copy_seconds / copies);
  }

  // Returns the time to copy one block from host memory; 0: it was not measured yet.
  double copy_seconds() const { return copy_.value(); }

  // Returns true if copying a block from host memory, after a fetch to host memory that takes
  // `fetch_seconds`, is cheaper than computing it. If not, the time of a copy decays; the caller
  // decays that of the fetch.
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
