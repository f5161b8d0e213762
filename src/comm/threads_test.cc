// Ranks as threads of this process: what they sum and gather is the same bits whatever their
// timing, and a rank that fails ends the group for all.
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

constexpr int64_t kCols = 40;

Values random_values(uint64_t seed, size_t n) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Values values(n);
  for (float& value : values) value = normal(rng);
  return values;
}

Tensor matrix(Values& values, int64_t cols = kCols) {
  return host_tensor(values.data(), DType::kF32, {std::ssize(values) / cols, cols});
}

// Runs `work` on a thread for each rank and returns what each threw, or "".
using Work = std::function<void(int rank, Communicator& group, Ops& ops)>;
std::vector<std::string> on_ranks(int size, const Work& work) {
  auto ranks = make_threads(size);
  std::vector<std::string> thrown(ranks.size());
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Communicator& group = *ranks[static_cast<size_t>(rank)];
      const auto ops = make_reference_ops();
      try {
        work(rank, group, *ops);
      } catch (const std::exception& error) {
        group.abort(error.what());
        thrown[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

void dawdle(std::mt19937_64& rng) {
  if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 50));
}

Values of_rank(int rank, size_t n) { return random_values(static_cast<uint64_t>(rank) + 10, n); }

// The sum in the order of ranks, each addition rounded to float32.
Values sum_of(int size, size_t n) {
  Values sum = of_rank(0, n);
  for (int rank = 1; rank < size; ++rank) {
    const Values next = of_rank(rank, n);
    for (size_t i = 0; i < n; ++i) sum[i] += next[i];
  }
  return sum;
}

class ThreadsTest : public testing::TestWithParam<int> {};

TEST_P(ThreadsTest, SumsInTheOrderOfRanksWhateverTheTiming) {
  const int size = GetParam();
  const auto thrown = on_ranks(size, [&](int rank, Communicator& group, Ops& ops) {
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), size);
    std::mt19937_64 rng(static_cast<uint64_t>(rank));
    for (const int rows : {1, 7, 64, 3, 1, 1, 7}) {
      const auto n = static_cast<size_t>(rows) * kCols;
      Values x = of_rank(rank, n);
      dawdle(rng);
      group.all_reduce(matrix(x), ops);
      EXPECT_EQ(x, sum_of(size, n)) << rows << " rows";
    }
  });
  EXPECT_EQ(thrown, std::vector<std::string>(static_cast<size_t>(size)));
}

// A row's sum does not know how many rows there are.
TEST_P(ThreadsTest, ARowInAnyBatchIsTheSame) {
  on_ranks(GetParam(), [&](int rank, Communicator& group, Ops& ops) {
    Values alone = of_rank(rank, kCols);
    group.all_reduce(matrix(alone), ops);
    for (const size_t rows : {7, 64}) {
      Values many = of_rank(rank, rows * kCols);
      const Values own = of_rank(rank, kCols);
      std::ranges::copy(own, many.end() - kCols);
      group.all_reduce(matrix(many), ops);
      EXPECT_EQ(Values(many.end() - kCols, many.end()), alone);
    }
  });
}

// bf16 is summed in float32 and rounded once: rounding each addition gives other bits.
TEST_P(ThreadsTest, NarrowValuesAreRoundedOnce) {
  const int size = GetParam();
  const auto narrow = [](int rank) {
    std::vector<BF16> values;
    for (const float x : of_rank(rank, kCols)) values.push_back(to_bf16(x));
    return values;
  };
  on_ranks(size, [&](int rank, Communicator& group, Ops& ops) {
    std::vector<BF16> x = narrow(rank);
    group.all_reduce(host_tensor(x.data(), DType::kBF16, {1, kCols}), ops);
    for (size_t i = 0; i < x.size(); ++i) {
      float sum = to_float(narrow(0)[i]);
      for (int other = 1; other < size; ++other) sum += to_float(narrow(other)[i]);
      EXPECT_EQ(x[i].bits, to_bf16(sum).bits);
    }
  });
}

// The residual gets the sum as it is, in float32.
TEST_P(ThreadsTest, ASumIsAddedBeforeTheNorm) {
  const int size = GetParam();
  on_ranks(size, [&](int rank, Communicator& group, Ops& ops) {
    Values weight = random_values(1, kCols), residual = random_values(2, 3 * kCols),
           want_residual = residual, want(residual.size()), out(residual.size()),
           delta = of_rank(rank, residual.size());
    const Norm norm{.weight = host_tensor(weight.data(), DType::kF32, {kCols}), .eps = 1e-5f};
    Values sum = sum_of(size, residual.size());
    ops.add_norm(matrix(want), matrix(want_residual), matrix(sum), norm);
    group.reduce_add_norm(matrix(out), matrix(residual), matrix(delta), norm, ResidualUse::kAny,
                          ops);
    EXPECT_EQ(out, want);
    EXPECT_EQ(residual, want_residual);
  });
}

TEST_P(ThreadsTest, GathersColumnsByRank) {
  const int size = GetParam();
  for (const bool in_place : {false, true})
    on_ranks(size, [&](int rank, Communicator& group, Ops& ops) {
      Values mine = of_rank(rank, 3 * kCols);
      Values all(mine.size() * static_cast<size_t>(size), -1);
      const Tensor out = matrix(all, int64_t{kCols} * size);
      Tensor x = matrix(mine);
      if (in_place) {
        const Tensor place = out.col_range(rank * kCols, kCols);
        ops.copy(place, x);
        x = place;
      }
      group.all_gather(out, x, ops);
      for (int from = 0; from < size; ++from) {
        const Values theirs = of_rank(from, 3 * kCols);
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t c = 0; c < kCols; ++c)
            EXPECT_EQ(out.row<float>(r)[from * kCols + c],
                      theirs[static_cast<size_t>(r * kCols + c)]);
      }
    });
}

TEST_P(ThreadsTest, LeastIsThatOfAllRanks) {
  const int size = GetParam();
  on_ranks(size, [&](int rank, Communicator& group, Ops&) {
    EXPECT_EQ(group.least(100 - rank), 100 - (size - 1));
    EXPECT_EQ(group.least(rank), 0);
  });
}

// Wherever the others are at that time, they get the reason.
TEST_P(ThreadsTest, ARankThatFailsEndsTheGroup) {
  const int size = GetParam();
  for (const int failing : {0, size - 1}) {
    const auto thrown = on_ranks(size, [&](int rank, Communicator& group, Ops& ops) {
      Values x(kCols, 1);
      for (int step = 0;; ++step) {
        if (step == 5 && rank == failing) throw std::runtime_error("no room");
        group.all_reduce(matrix(x), ops);
      }
    });
    for (const std::string& why : thrown) EXPECT_EQ(why, "no room");
  }
}

TEST_P(ThreadsTest, AnEndedGroupDoesNothingMore) {
  on_ranks(GetParam(), [](int, Communicator& group, Ops& ops) {
    group.abort("it is over");
    group.abort("a second reason");
    Values x(kCols, 1);
    try {
      group.all_reduce(matrix(x), ops);
      ADD_FAILURE() << "the group went on";
    } catch (const GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "it is over");
    }
  });
}

// Unlike things are not added up.
TEST(Threads, RanksAtDifferentPlacesEndTheGroup) {
  const auto thrown = on_ranks(3, [](int rank, Communicator& group, Ops& ops) {
    Values x(static_cast<size_t>(rank == 2 ? 2 : 1) * kCols, 1);
    group.all_reduce(matrix(x), ops);
  });
  for (const std::string& why : thrown)
    EXPECT_EQ(why,
              "ranks are at different places: rank 0 does all_reduce of [1, 40] float32, rank 2 "
              "all_reduce of [2, 40] float32");
  const auto kinds = on_ranks(2, [](int rank, Communicator& group, Ops& ops) {
    Values x(kCols, 1);
    if (rank == 0) return group.all_reduce(matrix(x), ops);
    group.least(3);
  });
  for (const std::string& why : kinds) EXPECT_THAT(why, HasSubstr("rank 1 least"));
}

// A group of one is a group: its bits are those of the solo one.
TEST(Threads, OneIsLikeSolo) {
  const auto ops = make_reference_ops();
  const auto one = make_thread_meshes(1);
  EXPECT_EQ(one.size(), 1u);
  const auto group = make_threads(1);
  Values weight = random_values(1, kCols), delta = random_values(2, kCols);
  const Norm norm{.weight = host_tensor(weight.data(), DType::kF32, {kCols}), .eps = 1e-5f};
  std::vector<Values> results;
  for (Communicator* c : {one[0].tp.get(), group[0].get()}) {
    Values residual = random_values(3, kCols), out(kCols), x = delta;
    c->reduce_add_norm(matrix(out), matrix(residual), matrix(x), norm, ResidualUse::kAny, *ops);
    results.push_back(residual);
    results.push_back(out);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace skiff::comm
