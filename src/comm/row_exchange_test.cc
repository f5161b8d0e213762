// Rows of several ranks come together and their sums go back, whatever their numbers, zero
// included, and whatever the timing.
#include "comm/row_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tensor/convert.h"

namespace skiff::comm {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;

constexpr int64_t kCols = 24;
constexpr int64_t kMostRows = 9;

Values random_values(uint64_t seed, int64_t rows) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Values values(static_cast<size_t>(rows * kCols));
  for (float& value : values) value = normal(rng);
  return values;
}

Tensor matrix(Values& values) {
  return host_tensor(values.data(), DType::kF32, {std::ssize(values) / kCols, kCols});
}

Values values_of(Tensor x) { return {x.as<float>(), x.as<float>() + x.elements()}; }

// What a rank computes for a row: something of its own.
float part_of(int rank, float x) { return x * (1.0f + 0.37f * static_cast<float>(rank)); }

// What becomes of a row, whoever has it.
float sum_of(int size, float x) {
  float sum = part_of(0, x);
  for (int rank = 1; rank < size; ++rank) sum += part_of(rank, x);
  return sum;
}

using Work = std::function<void(int rank, RowExchange& group, Arena& arena, Ops& ops)>;
std::vector<std::string> on_ranks(int size, const Work& work) {
  auto ranks = make_thread_exchanges(size);
  std::vector<std::string> thrown(ranks.size());
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      RowExchange& group = *ranks[static_cast<size_t>(rank)];
      const auto ops = make_reference_ops();
      Arena arena(Buffer(Device{}, exchange_bytes(size, kMostRows, kCols, DType::kF32) +
                                       Arena::size_of(DType::kF32, size * kMostRows * kCols)));
      try {
        work(rank, group, arena, *ops);
      } catch (const std::exception& error) {
        group.abort(error.what());
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

Values computed(int rank, RowExchange& group, Values x, Arena& arena, Ops& ops) {
  arena.reset();
  const Tensor all = group.dispatch(matrix(x), arena, ops);
  const Tensor parts = arena.take(DType::kF32, {all.rows(), kCols});
  for (int64_t i = 0; i < all.elements(); ++i)
    parts.as<float>()[i] = part_of(rank, all.as<float>()[i]);
  return values_of(group.combine(parts, matrix(x).rows(), arena, ops));
}

class RowExchangeTest : public testing::TestWithParam<int> {};

TEST_P(RowExchangeTest, RowsOfAllRanksComeInTheOrderOfRanks) {
  const int size = GetParam();
  const auto rows_of = [](int rank) { return int64_t{2} * rank % 3; };  // 0, 2, 1, 0
  const auto thrown = on_ranks(size, [&](int rank, RowExchange& group, Arena& arena, Ops& ops) {
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), size);
    Values x = random_values(static_cast<uint64_t>(rank), rows_of(rank)), want;
    for (int other = 0; other < size; ++other) {
      const Values theirs = random_values(static_cast<uint64_t>(other), rows_of(other));
      want.insert(want.end(), theirs.begin(), theirs.end());
    }
    const Tensor all = group.dispatch(matrix(x), arena, ops);
    EXPECT_EQ(all.cols(), kCols);
    EXPECT_EQ(values_of(all), want);
  });
  EXPECT_EQ(thrown, std::vector<std::string>(static_cast<size_t>(size)));
}

// Every rank has other rows in each round, often none, and at times nobody has any.
TEST_P(RowExchangeTest, ARowGetsTheSameSumsInAnyCompany) {
  const int size = GetParam();
  const auto thrown = on_ranks(size, [&](int rank, RowExchange& group, Arena& arena, Ops& ops) {
    std::mt19937_64 rng(static_cast<uint64_t>(rank) + 1);
    for (uint64_t round = 0; round < 200; ++round) {
      const auto rows =
          round % 7 == 0 ? int64_t{0} : static_cast<int64_t>(rng() % 2 * (rng() % kMostRows));
      const Values x = random_values(rng(), rows);
      if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 50));
      Values want = x;
      for (float& value : want) value = sum_of(size, value);
      ASSERT_EQ(computed(rank, group, x, arena, ops), want) << "round " << round;
    }
  });
  EXPECT_EQ(thrown, std::vector<std::string>(static_cast<size_t>(size)));
}

TEST_P(RowExchangeTest, NarrowValuesAreSummedInFloatAndRoundedOnce) {
  const int size = GetParam();
  on_ranks(size, [&](int rank, RowExchange& group, Arena& arena, Ops& ops) {
    std::vector<BF16> x;
    if (rank == size - 1)
      for (const float value : random_values(5, 1)) x.push_back(to_bf16(value));
    const auto rows = static_cast<int64_t>(x.size()) / kCols;
    const Tensor all =
        group.dispatch(host_tensor(x.data(), DType::kBF16, {rows, kCols}), arena, ops);
    const Tensor parts = arena.take(DType::kBF16, {all.rows(), kCols});
    for (int64_t i = 0; i < all.elements(); ++i)
      parts.as<BF16>()[i] = to_bf16(part_of(rank, to_float(all.as<BF16>()[i])));
    const Tensor out = group.combine(parts, rows, arena, ops);
    for (size_t i = 0; i < x.size(); ++i) {
      float sum = 0;
      for (int other = 0; other < size; ++other) {
        const float part = to_float(to_bf16(part_of(other, to_float(x[i]))));
        sum = other == 0 ? part : sum + part;
      }
      EXPECT_EQ(out.as<BF16>()[i].bits, to_bf16(sum).bits);
    }
  });
}

TEST_P(RowExchangeTest, LeastIsThatOfAllRanks) {
  const int size = GetParam();
  on_ranks(size, [&](int rank, RowExchange& group, Arena&, Ops&) {
    EXPECT_EQ(group.least(100 - rank), 100 - (size - 1));
  });
}

// A rank without rows notices, too, and one may be ended from outside.
TEST_P(RowExchangeTest, ARankThatFailsEndsTheGroup) {
  const int size = GetParam();
  for (const int failing : {0, size - 1}) {
    const auto thrown = on_ranks(size, [&](int rank, RowExchange& group, Arena& arena, Ops& ops) {
      for (int round = 0;; ++round) {
        if (round == 5 && rank == failing) throw std::runtime_error("no room");
        computed(rank, group, random_values(1, rank), arena, ops);
      }
    });
    for (const std::string& why : thrown) EXPECT_EQ(why, "no room");
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowExchangeTest, testing::Values(2, 3, 4));

TEST(RowExchange, RanksAtDifferentPlacesEndTheGroup) {
  const auto thrown = on_ranks(2, [](int rank, RowExchange& group, Arena& arena, Ops& ops) {
    Values x = random_values(1, rank == 0 ? 3 : 2);
    if (rank == 0) return (void)group.dispatch(matrix(x), arena, ops);
    (void)group.combine(matrix(x), 1, arena, ops);
  });
  for (const std::string& why : thrown) EXPECT_THAT(why, HasSubstr("rank 1 combine of [2, 24]"));
}

TEST(RowExchange, AGroupOfOneMovesNothing) {
  const auto group = make_solo_exchange();
  const auto ops = make_reference_ops();
  Arena arena(Buffer(Device{}, 64));
  Values x = random_values(1, 3);
  const Tensor mine = matrix(x);
  EXPECT_EQ(group->dispatch(mine, arena, *ops).data, mine.data);
  EXPECT_EQ(group->combine(mine, 3, arena, *ops).data, mine.data);
  EXPECT_EQ(group->least(7), 7);
  EXPECT_EQ(arena.peak(), exchange_bytes(1, 3, kCols, DType::kF32));
  EXPECT_EQ(make_solo_mesh().experts->size(), 1);
}

TEST(RowExchange, TheArenaThatIsStatedIsTaken) {
  constexpr int kSize = 3;
  on_ranks(kSize, [](int, RowExchange& group, Arena& arena, Ops& ops) {
    Values x = random_values(1, 4), parts = random_values(2, int64_t{4} * kSize);
    (void)group.dispatch(matrix(x), arena, ops);
    (void)group.combine(matrix(parts), 4, arena, ops);
    EXPECT_EQ(arena.peak(), exchange_bytes(kSize, 4, kCols, DType::kF32));
  });
}

}  // namespace
}  // namespace skiff::comm
