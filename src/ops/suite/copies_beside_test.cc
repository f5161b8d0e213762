// Copies beside other operations: what waits for them and what they wait for.
#include <cstring>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

Buffer host_memory(const Ops& ops, size_t size) {
  return ops.device() == Device{} ? Buffer(Device{}, size) : Buffer::pinned(size);
}

// Pages on the device and in host memory, and what they should hold.
class Pages {
 public:
  Pages(Ops& ops, Rng& rng)
      : ops_(ops),
        rng_(rng),
        device_(ops.device(), kPages * kBytes),
        host_(host_memory(ops, kPages * kBytes)),
        seen_(host_memory(ops, kPages * kBytes)),
        long_(ops.device(), 2 * kLong) {
    for (int i = 0; i < kPages; ++i) {
      fill(i);
      ops_.copy(page(i), host(i));
    }
    ops_.wait(ops_.mark());
    wants_ = hosts_;
  }

  void step() {
    if (rng_.below(3) == 0) work_long();
    if (rng_.below(2) == 0) {
      load();
    } else {
      const int from = rng_.below(kPages), to = rng_.below(kPages);
      settle(from);
      settle(to);
      if (from != to) ops_.copy(page(to), page(from));
      want(to) = want(from);
    }
    if (rng_.below(4) == 0) ops_.wait_copies(last_), done_ = last_;
  }
  void expect() {
    for (int i = 0; i < kPages; ++i) settle(i);
    ops_.copy(seen_.view(DType::kF32, {kPages, kBytes / 4}),
              device_.view(DType::kF32, {kPages, kBytes / 4}));
    ops_.wait(ops_.mark());
    for (int i = 0; i < kPages; ++i) {
      const auto* values = seen_.view(DType::kF32, {kPages, kBytes / 4}).row<float>(i);
      const auto wrong =
          std::count_if(values, values + kBytes / 4, [&](float value) { return value != want(i); });
      EXPECT_EQ(wrong, 0) << "page " << i;
    }
  }

 private:
  static constexpr int kPages = 12;
  static constexpr int64_t kBytes = 1 << 20, kLong = 16 << 20;

  Tensor page(int i) const {
    return device_.view(DType::kF32, {kPages, kBytes / 4}).row_range(i, 1);
  }
  Tensor host(int i) const { return host_.view(DType::kF32, {kPages, kBytes / 4}).row_range(i, 1); }
  float& want(int i) { return wants_[static_cast<size_t>(i)]; }
  void fill(int i) {
    const auto value = static_cast<float>(++values_);
    std::fill_n(host(i).as<float>(), kBytes / 4, value);
    hosts_[static_cast<size_t>(i)] = value;
  }
  // Operations that follow may use the page.
  void settle(int i) {
    const uint64_t number = loaded_[static_cast<size_t>(i)];
    if (number > done_) ops_.after(number);
  }
  void work_long() {
    const Tensor all = long_.view(DType::kF32, {2, kLong / 4});
    for (int i = 0; i < 4; ++i) ops_.copy(all.row_range(i % 2, 1), all.row_range((i + 1) % 2, 1));
  }
  // From host pages that no copy under way reads.
  void load() {
    std::vector<Arrival> copies;
    std::vector<int> to;
    for (int n = 1 + rng_.below(3); n > 0; --n) {
      const int from = rng_.below(kPages);
      to.push_back(rng_.below(kPages));
      if (reads_[static_cast<size_t>(from)] <= done_) fill(from);
      want(to.back()) = hosts_[static_cast<size_t>(from)];
      reads_[static_cast<size_t>(from)] = last_ + 1;
      copies.push_back({page(to.back()), host(from)});
    }
    const CopiesBeside begun = ops_.copy_beside(copies);
    if (begun.number == 0) ops_.wait(ops_.mark()), done_ = last_ + 1;
    last_ = begun.number == 0 ? last_ + 1 : begun.number;
    for (const int page : to) loaded_[static_cast<size_t>(page)] = last_;
  }

  Ops& ops_;
  Rng& rng_;
  Buffer device_, host_, seen_, long_;
  std::array<float, kPages> hosts_{}, wants_{};
  std::array<uint64_t, kPages> loaded_{}, reads_{};  // the copies that write, or read, it last
  uint64_t last_ = 0, done_ = 0;
  int values_ = 0;
};

TEST_P(OpSuite, CopiesBesideOthersArriveWholeAndInOrder) {
  ops->bind_thread();
  Rng rng(23);
  Pages pages(*ops, rng);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 10; ++i) pages.step();
    pages.expect();
  }
}

TEST_P(OpSuite, CopiesBesideOthersDoNotWaitForWhatFollows) {
  constexpr int64_t kLong = 64 << 20, kShort = 1 << 20;
  ops->bind_thread();
  const Buffer work(ops->device(), 2 * kLong), to(ops->device(), kShort);
  const Buffer from = host_memory(*ops, kShort);
  std::memset(from.data(), 0, kShort);
  const Tensor all = work.view(DType::kF32, {2, kLong / 4});
  const auto work_for = [&](int times) {
    for (int i = 0; i < times; ++i) ops->copy(all.row_range(i % 2, 1), all.row_range(1 - i % 2, 1));
  };
  const Arrival copy{to.view(DType::kF32, {1, kShort / 4}),
                     from.view(DType::kF32, {1, kShort / 4})};
  work_for(2);
  const uint64_t begin = ops->stamp();
  const CopiesBeside copies = ops->copy_beside({&copy, 1});
  work_for(ops->device() == Device{} ? 1
                                     : 100);  // milliseconds, where the copy takes less than one
  const uint64_t end = ops->stamp();
  finish();
  if (copies.number > 0) ops->wait_copies(copies.number);
  EXPECT_GE(ops->seconds_between(begin, copies.begin), 0);
  EXPECT_GT(ops->seconds_between(copies.begin, copies.end), 0);
  EXPECT_GT(ops->seconds_between(copies.end, end), 0);
}

}  // namespace
}  // namespace skiff::suite
