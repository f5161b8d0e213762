// Rows of several ranks on CUDA devices come together and their sums go back, against the host.
// Ranks have a device each where there are enough; else all are on the first one.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "comm/devices/exchange.h"
#include "comm/devices/group.h"
#include "ops/ops.h"
#include "tensor/convert.h"
#include "tensor/device_memory.h"

namespace skiff::devices {
namespace {

std::vector<int> places_of(int ranks) {
  std::vector<int> devices(static_cast<size_t>(ranks), 0);
  if (num_cuda_devices() >= ranks) std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

// The word is the pattern of an empty mailbox, so some of the random data has it.
template <class T>
T random_value(std::mt19937_64& rng) {
  const uint64_t bits = rng();
  const float value = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-30f;
  const bool empty = bits % 50 == 0;
  if constexpr (sizeof(T) == 2)
    return empty ? T{0x8000} : static_cast<T>(std::bit_cast<uint32_t>(value) >> 16);
  else
    return empty ? std::bit_cast<float>(0x80008000u) : value;
}

template <class T>
std::vector<T> random_values(uint64_t seed, int64_t count) {
  std::mt19937_64 rng(seed);
  std::vector<T> out(static_cast<size_t>(count));
  std::ranges::generate(out, [&] { return random_value<T>(rng); });
  return out;
}

float widened(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
float widened(float x) { return x; }
// What arrives in place of the pattern of an empty mailbox.
uint16_t sent(uint16_t bits) { return bits == 0x8000 ? 0 : bits; }
float sent(float x) { return std::bit_cast<uint32_t>(x) == 0x80008000u ? -0.0f : x; }
void round_to(float x, float& out) { out = x; }
void round_to(float x, uint16_t& out) { out = to_bf16(x).bits; }

template <class T>
constexpr DType kType = sizeof(T) == 2 ? DType::kBF16 : DType::kF32;

// One rank with its thread's things.
struct Rank {
  Rank(int device, std::shared_ptr<comm::RowExchange> group)
      : ops(make_cuda_ops({.device = device, .max_seqs = 8, .max_rows = 64})),
        exchange(std::move(group)),
        arena(Buffer(ops->device(), size_t{256} << 20)),
        pinned(Buffer::pinned(size_t{64} << 20)) {}

  template <class T>
  Tensor take(const std::vector<T>& values, int64_t rows, int64_t cols) {
    const Tensor out = arena.take(kType<T>, {rows, cols});
    if (rows == 0) return out;
    ops->copy(out, host_tensor(const_cast<T*>(values.data()), kType<T>, {rows, cols}));
    ops->wait(ops->mark());
    return out;
  }
  // Through page-locked memory, to which a kernel writes what is small: ranks on one device would
  // wait for each other's copies, which it makes one after the other.
  template <class T>
  std::vector<T> read(Tensor x) {
    if (x.elements() == 0) return {};
    const Tensor to = pinned.view(kType<T>, {x.rows(), x.cols()});
    ops->copy(to, x);
    ops->wait(ops->mark());
    const auto* from = reinterpret_cast<const T*>(pinned.data());
    return {from, from + x.elements()};
  }

  // From then on replays of `work`, which has run once, are launches of a graph.
  void record(const ReplayKey& key, const std::function<void()>& work) {
    ops->replay(key, work);
    ops->replay(key, work);
    ops->wait(ops->mark());
    exchange->begin_service();
  }

  std::unique_ptr<Ops> ops;
  std::shared_ptr<comm::RowExchange> exchange;
  Arena arena;
  Buffer pinned;
};

class DeviceExchangeTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
    group_.emplace(places_of(GetParam()), DeviceGroup::owners_from(GetParam()));
    for (const auto& exchange : group_->make_exchanges())
      ranks_.push_back(std::make_unique<Rank>(
          places_of(GetParam())[static_cast<size_t>(exchange->rank())], exchange));
    // On one device no kernel may be loaded while another rank's waits, so all are run once before.
    const std::vector<int64_t> ones(ranks_.size(), 1);
    for (const int64_t cols : {8, 50}) {
      check<float>(ones, cols, 1);
      check<uint16_t>(ones, cols, 1);
    }
  }

  // Calls work(its number, rank) on a thread for each rank.
  void on_all(const std::function<void(size_t, Rank&)>& work) {
    std::vector<std::thread> threads;
    threads.reserve(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i)
      threads.emplace_back([&, i] {
        ranks_[i]->ops->bind_thread();
        work(i, *ranks_[i]);
      });
    for (std::thread& thread : threads) thread.join();
  }

  template <class T>
  void check(const std::vector<int64_t>& rows, int64_t cols, uint64_t seed);
  void check_random(int rounds, int64_t most, uint64_t seed);
  void check_padding(int64_t most);
  void leave_ended(int64_t rows);

  std::optional<DeviceGroup> group_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Dispatches rows[r] rows of rank r, and combines random parts of all ranks for all rows.
template <class T>
void DeviceExchangeTest::check(const std::vector<int64_t>& rows, int64_t cols, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(rows) << " rows of " << cols << ", "
                                    << sizeof(T) << " bytes");
  comm::RowsOfRanks all;
  std::vector<T> want;
  std::vector<std::vector<T>> own, parts, together(ranks_.size()), sums(ranks_.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    all = {.most = std::max(all.most, rows[r]), .sum = all.sum + rows[r]};
    own.push_back(random_values<T>(seed + r, rows[r] * cols));
    std::ranges::transform(own[r], std::back_inserter(want), [](T x) { return sent(x); });
  }
  for (size_t r = 0; r < rows.size(); ++r)
    parts.push_back(random_values<T>(seed + 100 + r, all.sum * cols));
  on_all([&](size_t r, Rank& rank) {
    rank.arena.reset();
    rank.exchange->expect(all);
    const Tensor x = rank.take(own[r], rows[r], cols), part = rank.take(parts[r], all.sum, cols);
    const Tensor gathered = rank.exchange->dispatch(x, rank.arena, *rank.ops);
    const Tensor sum = rank.exchange->combine(part, rows[r], rank.arena, *rank.ops);
    together[r] = rank.read<T>(gathered);
    sums[r] = rank.read<T>(sum);
  });
  int64_t first = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    ASSERT_EQ(together[r].size(), want.size());
    ASSERT_EQ(std::memcmp(together[r].data(), want.data(), want.size() * sizeof(T)), 0)
        << "rows at rank " << r;
    ASSERT_EQ(sums[r].size(), static_cast<size_t>(rows[r] * cols));
    for (size_t i = 0; i < sums[r].size(); ++i) {
      float sum = 0;
      for (const auto& part : parts)
        sum += widened(sent(part[static_cast<size_t>(first * cols) + i]));
      T expected;
      round_to(sum, expected);
      ASSERT_EQ(widened(sums[r][i]), widened(expected)) << "element " << i << " of rank " << r;
    }
    first += rows[r];
  }
}

void DeviceExchangeTest::check_random(int rounds, int64_t most, uint64_t seed) {
  std::mt19937_64 rng(seed);
  for (int round = 0; round < rounds; ++round) {
    std::vector<int64_t> rows(ranks_.size());
    for (int64_t& one : rows)
      one = rng() % 3 == 0 ? 0 : static_cast<int64_t>(rng() % static_cast<uint64_t>(most + 1));
    if (std::ranges::all_of(rows, [](int64_t n) { return n == 0; })) rows[rng() % rows.size()] = 1;
    const int64_t cols = std::vector<int64_t>{8, 50, 1024, 4096}[rng() % 4];
    if (rng() % 2)
      check<float>(rows, cols, rng());
    else
      check<uint16_t>(rows, cols, rng());
    if (HasFatalFailure()) return;
  }
}

// Before and after service begins: hosts meet around each call, or never.
TEST_P(DeviceExchangeTest, RaggedRowsComeTogetherAndGoBack) {
  check_random(20, 70, 1);
  on_all([](size_t, Rank& rank) { rank.exchange->begin_service(); });
  check_random(120, 70, 2);
}

// Many rows: more than fit a slot.
constexpr int64_t most_few(int64_t row_bytes) { return int64_t{kRowsBytes} / row_bytes; }

// Some ranks have none, and others more chunks than a ring has slots; rows at any address.
TEST_P(DeviceExchangeTest, ManyRowsGoThroughRings) {
  std::vector<int64_t> rows(ranks_.size(), 0);
  for (const bool served : {false, true}) {
    if (served) on_all([](size_t, Rank& rank) { rank.exchange->begin_service(); });
    rows.front() = served ? 1300 : 0;
    rows.back() = 2500;
    check<uint16_t>(rows, 4096, 1);
    check<uint16_t>(rows, 2051, 2);
    check<float>(rows, 1500, 3);
  }
  std::mt19937_64 rng(4);
  for (int round = 0; round < 8 && !HasFatalFailure(); ++round) {
    for (int64_t& one : rows) one = rng() % 3 == 0 ? 0 : static_cast<int64_t>(rng() % 700);
    rows[rng() % rows.size()] = 2100 + static_cast<int64_t>(rng() % 300);
    static_assert(most_few(/*row_bytes=*/4112) < 2100);
    if (round % 2)
      check<float>(rows, 1028, rng());
    else
      check<uint16_t>(rows, 2056, rng());
  }
}

// Calls of both kinds in turns, and some ranks begin each a little later than others.
TEST_P(DeviceExchangeTest, ReplaysOfManyRows) {
  constexpr int kReplays = 60;
  constexpr int64_t kCols = 4096, kRows = most_few(kCols * 2) + 1, kFew = 5;
  std::vector<int> wrong(ranks_.size());
  on_all([&](size_t r, Rank& rank) {
    const auto values = random_values<uint16_t>(60 + r, kRows * kCols);
    const Tensor x = rank.take(values, kRows, kCols), back = rank.take(values, kRows, kCols);
    const size_t mark = rank.arena.mark();
    const auto work = [&] {
      rank.exchange->expect({});
      for (const int64_t rows : {kRows, kFew, kRows}) {
        rank.arena.rewind(mark);
        const Tensor all = rank.exchange->dispatch(x.row_range(0, rows), rank.arena, *rank.ops);
        rank.ops->copy(back.row_range(0, rows),
                       rank.exchange->combine(all, rows, rank.arena, *rank.ops));
      }
    };
    work();
    const auto expected = rank.read<uint16_t>(back);
    const ReplayKey key{.rows = kRows, .rows_per_seq = 1};
    rank.record(key, work);
    std::mt19937_64 rng(r);
    for (int i = 0; i < kReplays; ++i) {
      if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 2000));
      rank.ops->replay(key, work);
      wrong[r] += rank.read<uint16_t>(back) != expected;
    }
  });
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

// A rank that has nothing to do is not overtaken: it begins each call some time after the others.
TEST_P(DeviceExchangeTest, NobodyRunsAheadOfARankWithoutRows) {
  on_all([](size_t, Rank& rank) { rank.exchange->begin_service(); });
  constexpr int64_t kCols = 512, kRows = 3;
  constexpr int kCalls = 60;
  const auto values = random_values<float>(1, kRows * kCols);
  on_all([&](size_t r, Rank& rank) {
    const bool idle = r == 0;
    const int64_t rows = idle ? 0 : kRows, sum = kRows * (std::ssize(ranks_) - 1);
    rank.exchange->expect(comm::RowsOfRanks{.most = kRows, .sum = sum});
    const Tensor x = rank.take(values, rows, kCols);
    const size_t mark = rank.arena.mark();
    rank.exchange->least(0);
    int wrong = 0;
    for (int call = 0; call < kCalls; ++call) {
      if (idle && call % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      rank.arena.rewind(mark);
      const Tensor all = rank.exchange->dispatch(x, rank.arena, *rank.ops);
      const Tensor back = rank.exchange->combine(all, rows, rank.arena, *rank.ops);
      const auto got = rank.read<float>(back);
      for (size_t i = 0; i < got.size(); ++i) {
        float expected = 0;
        for (size_t n = 0; n < ranks_.size(); ++n) expected += sent(values[i]);
        wrong += got[i] != expected;
      }
    }
    EXPECT_EQ(wrong, 0) << "rank " << r;
  });
}

// A step of kStepRows sequences of which only some have a row.
constexpr int kStepRows = 6;
constexpr int64_t kPaddedCols = 64;
int live_of(size_t rank) { return static_cast<int>((rank * 4 + 2) % kStepRows); }
void begin_padded_step(size_t r, Rank& rank) {
  std::vector<int32_t> row_start(kStepRows + 1), kv_len(kStepRows, 0);
  for (int s = 0; s <= kStepRows; ++s) row_start[static_cast<size_t>(s)] = std::min(s, live_of(r));
  const Tensor starts = rank.arena.take(DType::kI32, {kStepRows + 1});
  rank.ops->copy(starts, host_tensor(row_start.data(), DType::kI32, {kStepRows + 1}));
  RaggedBatch batch;
  batch.num_seqs = batch.num_tokens = kStepRows;
  batch.row_start = starts;
  batch.host_row_start = row_start;
  batch.host_kv_len = kv_len;
  rank.ops->begin_step(batch, {});
  rank.exchange->expect({});
}

// A step's padding is left out: the rows that count come first, and each rank's padding is 0.
void DeviceExchangeTest::check_padding(int64_t most) {
  constexpr int64_t kCols = kPaddedCols;
  std::vector<std::vector<float>> got(ranks_.size()), own, sums(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r)
    own.push_back(random_values<float>(r, kStepRows * kCols));
  on_all([&](size_t r, Rank& rank) {
    rank.arena.reset();
    begin_padded_step(r, rank);
    rank.exchange->expect(comm::RowsOfRanks{.most = most, .sum = kStepRows * std::ssize(ranks_)});
    const Tensor x = rank.take(own[r], kStepRows, kCols);
    const Tensor all = rank.exchange->dispatch(x, rank.arena, *rank.ops);
    sums[r] = rank.read<float>(rank.exchange->combine(all, kStepRows, rank.arena, *rank.ops));
    got[r] = rank.read<float>(all);
  });
  std::vector<float> want;
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t i = 0; i < static_cast<size_t>(live_of(r) * kCols); ++i)
      want.push_back(sent(own[r][i]));
  for (size_t r = 0; r < ranks_.size(); ++r) {
    EXPECT_EQ(std::memcmp(got[r].data(), want.data(), want.size() * sizeof(float)), 0);
    for (size_t i = 0; i < sums[r].size(); ++i) {
      float expected = 0;
      for (size_t n = 0; n < ranks_.size(); ++n) expected += sent(own[r][i]);
      ASSERT_EQ(sums[r][i], i < static_cast<size_t>(live_of(r) * kCols) ? expected : 0) << r;
    }
  }
}
TEST_P(DeviceExchangeTest, PaddingIsLeftOut) { check_padding(kStepRows); }
TEST_P(DeviceExchangeTest, PaddingOfManyRowsIsLeftOut) {
  check_padding(most_few(kPaddedCols * 4) + 1);
}

// Between a dispatch and its combine the rows of all are routed; before and behind, a rank's own,
// as those of a mixture that it has for itself.
TEST_P(DeviceExchangeTest, RowsOfAllAreRoutedBeforeTheyGoBack) {
  constexpr int kExperts = 8;
  const Router router{.experts = kExperts, .top_k = 2};
  int all = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) all += live_of(r);
  on_all([&](size_t r, Rank& rank) {
    rank.arena.reset();
    begin_padded_step(r, rank);
    const Tensor x =
        rank.take(random_values<float>(r, int64_t{kStepRows} * kExperts), kStepRows, kExperts);
    const auto routed = [&](Tensor logits) {
      const Routing routing = rank.ops->route(logits, {}, router, rank.arena);
      const Tensor starts = rank.pinned.view(DType::kI32, {kExperts + 1});
      rank.ops->copy(starts, routing.expert_start);
      rank.ops->wait(rank.ops->mark());
      return starts.as<int32_t>()[kExperts];
    };
    EXPECT_EQ(routed(x), 2 * live_of(r));
    const Tensor rows = rank.exchange->dispatch(x, rank.arena, *rank.ops);
    EXPECT_EQ(routed(rows), 2 * all);
    const Tensor back = rank.exchange->combine(rows, kStepRows, rank.arena, *rank.ops);
    EXPECT_EQ(routed(back), 2 * live_of(r));
  });
}

// Replayed calls, with others of another size between them, give what the first one gave.
TEST_P(DeviceExchangeTest, Replays) {
  constexpr int kReplays = 500;
  constexpr int64_t kRows = 3, kCols = 2048;
  std::vector<int> wrong(ranks_.size());
  on_all([&](size_t r, Rank& rank) {
    const auto values = random_values<uint16_t>(40 + r, kRows * kCols);
    const Tensor x = rank.take(values, kRows, kCols), back = rank.take(values, kRows, kCols);
    const size_t mark = rank.arena.mark();
    const auto work = [&] {
      rank.arena.rewind(mark);
      rank.exchange->expect({});
      const Tensor all = rank.exchange->dispatch(x, rank.arena, *rank.ops);
      rank.ops->copy(back, rank.exchange->combine(all, kRows, rank.arena, *rank.ops));
    };
    work();
    const auto expected = rank.read<uint16_t>(back);
    const ReplayKey key{.rows = kRows, .rows_per_seq = 1};
    rank.record(key, work);
    for (int i = 0; i < kReplays; ++i) {
      rank.ops->replay(key, work);
      if (i % 3 == 0) {
        rank.arena.rewind(mark);
        const int64_t rows = r == 0 ? 1 : 2;
        rank.exchange->expect(comm::RowsOfRanks{.most = 2, .sum = 2 * std::ssize(ranks_) - 1});
        rank.exchange->dispatch(x.row_range(0, rows), rank.arena, *rank.ops);
      }
      if (i % 50 == 0) wrong[r] += rank.read<uint16_t>(back) != expected;
    }
  });
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

// Ranks that wait for one that is gone leave.
void DeviceExchangeTest::leave_ended(int64_t rows) {
  check<float>(std::vector<int64_t>(ranks_.size(), rows), 4096, 1);
  on_all([](size_t, Rank& rank) { rank.exchange->begin_service(); });
  std::latch waiting(std::ssize(ranks_));
  on_all([&](size_t r, Rank& rank) {
    if (r == 1) {
      waiting.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return rank.exchange->abort("replica 1: out of ideas");
    }
    const Tensor x = rank.take(random_values<float>(1, rows * 4096), rows, 4096);
    const Tensor all = rank.exchange->dispatch(x, rank.arena, *rank.ops);
    waiting.count_down();
    rank.read<float>(all);
    try {
      rank.exchange->combine(all, rows, rank.arena, *rank.ops);
      ADD_FAILURE() << "rank " << r << " went on";
    } catch (const comm::GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "replica 1: out of ideas");
    }
  });
}
TEST_P(DeviceExchangeTest, AnEndedGroupIsLeft) { leave_ended(1); }
TEST_P(DeviceExchangeTest, AnEndedGroupIsLeftByManyRows) { leave_ended(most_few(16384) + 1); }

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceExchangeTest, ::testing::Values(2, 3, 4));

}  // namespace
}  // namespace skiff::devices
