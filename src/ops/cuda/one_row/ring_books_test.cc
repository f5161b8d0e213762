// A producer, its copies and its consumers play on mbarriers as PTX defines them; the producer must
// never wait for something that has already happened twice, which a barrier's parity cannot tell.
#include "ops/cuda/one_row/ring_books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace skiff::cuda {
namespace {

// mbarrier.try_wait.parity: true when the phase of that parity has completed and the next has not.
struct Barrier {
  int completed = 0;
  bool passed(uint32_t parity) const { return completed % 2 != static_cast<int>(parity); }
};

struct Item {
  int bytes, need = 0, begin = 0;
  bool issued = false, arrived = false, released = false;
};

enum class Pace { kQuickConsumers, kLateConsumers, kRandom };

class Play {
 public:
  Play(int ring_bytes, int max_in_flight, const std::vector<int>& sizes, Pace pace, unsigned seed)
      : place_(ring_bytes),
        books_(ring_bytes, max_in_flight),
        max_in_flight_(max_in_flight),
        pace_(pace),
        random_(seed) {
    for (int bytes : sizes) items_.push_back({.bytes = bytes});
  }

  // True: every item was issued, arrived and was released.
  bool run() {
    while (next_ < items_.size()) {
      if (pace_ == Pace::kQuickConsumers)
        while (others_step()) {
        }
      if (pace_ == Pace::kRandom && random_() % 2 && others_step()) continue;
      if (!producer_step() && !others_step()) return false;  // nobody can move: a hang
      if (testing::Test::HasFailure()) return false;
    }
    while (others_step()) {
    }
    return std::ranges::all_of(items_, &Item::released);
  }
  size_t issued() const { return next_; }

 private:
  bool producer_step() {
    Item& item = items_[next_];
    if (item.need == 0) {
      item.begin = place_.take(item.bytes);
      item.need = item.bytes + place_.skipped();
    }
    if (books_.needs_release(item.need)) {
      const RingCount oldest = books_.oldest();
      if (!empty_[oldest.slot].passed(oldest.parity)) return false;
      books_.released(need_of_slot_[oldest.slot]);
      return true;
    }
    if (books_.needs_arrival(item.need)) {
      const RingCount first = books_.in_flight();
      if (!full_[first.slot].passed(first.parity)) return false;
      books_.arrived(need_of_slot_[first.slot]);
      return true;
    }
    issue(item);
    return true;
  }
  void issue(Item& item) {
    int in_flight = 0;
    for (size_t i = first_unreleased_; i < next_; ++i) {
      const Item& other = items_[i];
      if (!other.arrived) in_flight += other.need;
      if (other.released) continue;
      EXPECT_TRUE(other.begin + other.bytes <= item.begin || item.begin + item.bytes <= other.begin)
          << "item " << next_ << " overwrites item " << i << ", which is in use";
    }
    EXPECT_TRUE(in_flight == 0 || in_flight + item.need <= max_in_flight_);
    need_of_slot_[books_.newest().slot] = item.need;
    books_.issued(item.need);
    books_.next();
    item.issued = true;
    ++next_;
  }
  // A copy completes (in any order), or the consumers release the next item that they have read.
  bool others_step() {
    if (pace_ != Pace::kRandom || random_() % 2) return arrive() || release();
    return release() || arrive();
  }
  bool arrive() {
    std::vector<size_t> on_way;
    for (size_t i = first_unreleased_; i < next_; ++i)
      if (!items_[i].arrived) on_way.push_back(i);
    if (on_way.empty()) return false;
    const size_t i = pace_ == Pace::kRandom ? on_way[random_() % on_way.size()] : on_way.front();
    items_[i].arrived = true;
    ++full_[i % kRingItems].completed;
    return true;
  }
  bool release() {
    if (first_unreleased_ == next_ || !items_[first_unreleased_].arrived) return false;
    items_[first_unreleased_].released = true;
    ++empty_[first_unreleased_ % kRingItems].completed;
    ++first_unreleased_;
    return true;
  }

  RingPlace place_;
  RingBooks books_;
  int max_in_flight_;
  Pace pace_;
  std::mt19937 random_;
  std::vector<Item> items_;
  size_t next_ = 0, first_unreleased_ = 0;
  Barrier full_[kRingItems], empty_[kRingItems];
  int need_of_slot_[kRingItems] = {};
};

constexpr int kUnitBytes = 512;  // 256 inputs of one weight row
constexpr int kRowsOfGroup = 4;  // weight rows in an item
constexpr int kMaxUnits = 10;    // units of a weight row in one item
constexpr int kMaxInFlight = 96 << 10;

// The items of `groups` groups of weight rows of 256 * units inputs, as one_row.cc cuts them.
std::vector<int> items_of(int units, int groups) {
  int each = units;
  if (units > kMaxUnits) {
    const int items = (units + 7) / 8;
    each = (units + items - 1) / items;
  }
  std::vector<int> sizes;
  for (int g = 0; g < groups; ++g)
    for (int u = 0; u < units; u += each)
      sizes.push_back(kRowsOfGroup * kUnitBytes * std::min(each, units - u));
  return sizes;
}

int ring_bytes(int x_bytes) { return (212 * 1024 - x_bytes - 8192 - 3072) / 1024 * 1024; }

class RingBooksTest : public testing::TestWithParam<Pace> {};

TEST_P(RingBooksTest, EveryInnerDimensionEnds) {
  for (int units = 1; units <= 240; ++units) {
    Play play(ring_bytes(units * kUnitBytes), kMaxInFlight, items_of(units, 300), GetParam(),
              static_cast<unsigned>(units));
    ASSERT_TRUE(play.run()) << "inner dimension " << units * 256 << " hangs at item "
                            << play.issued();
  }
}

// Steps of a segment follow each other in one ring: norms, gates and heads of different widths.
TEST_P(RingBooksTest, MixedItemsEnd) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<int> sizes;
    while (sizes.size() < 900) {
      const std::vector<int> more =
          items_of(1 + static_cast<int>(random() % 40), 1 + static_cast<int>(random() % 120));
      sizes.insert(sizes.end(), more.begin(), more.end());
    }
    Play play(ring_bytes(20480), kMaxInFlight, sizes, GetParam(), seed);
    ASSERT_TRUE(play.run()) << "seed " << seed << " hangs at item " << play.issued();
  }
}

INSTANTIATE_TEST_SUITE_P(Paces, RingBooksTest,
                         testing::Values(Pace::kQuickConsumers, Pace::kLateConsumers,
                                         Pace::kRandom));

}  // namespace
}  // namespace skiff::cuda
