// A grid of ranks of which each is in two groups: one adds up, the other exchanges rows. Ranks have
// a CUDA device each where there are enough; else all are on the first one.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "comm/devices/grid_testing.h"
#include "comm/devices/group.h"
#include "ops/ops.h"
#include "tensor/device_memory.h"

namespace skiff::devices {
namespace {

constexpr size_t kReplicas = 2, kRanks = 2;

// Ranks are numbered replica by replica.
int device_of(size_t number) {
  return num_cuda_devices() >= int{kReplicas * kRanks} ? static_cast<int>(number) : 0;
}

std::vector<float> random_values(uint64_t seed, int64_t count) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  std::ranges::generate(out, [&] { return normal(rng); });
  return out;
}

// One of the grid with its thread's things.
struct Place {
  explicit Place(size_t number)
      : ops(make_cuda_ops({.device = device_of(number), .max_seqs = 8, .max_rows = 64})),
        arena(Buffer(ops->device(), size_t{64} << 20)),
        pinned(Buffer::pinned(size_t{16} << 20)) {}

  Tensor take(const std::vector<float>& values, int64_t rows, int64_t cols) {
    const Tensor out = arena.take(DType::kF32, {rows, cols});
    const Tensor from = pinned.view(DType::kF32, {rows, cols});
    std::ranges::copy(values, from.as<float>());
    ops->copy(out, from);
    ops->wait(ops->mark());
    return out;
  }
  std::vector<float> read(Tensor x) {
    const Tensor to = pinned.view(DType::kF32, {x.rows(), x.cols()});
    ops->copy(to, x);
    ops->wait(ops->mark());
    return {to.as<float>(), to.as<float>() + to.elements()};
  }

  std::unique_ptr<Ops> ops;
  comm::Mesh mesh;
  Arena arena;
  Buffer pinned;
};

class TwoGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_grid(kReplicas * kRanks); !why.empty()) GTEST_SKIP() << why;
    for (size_t i = 0; i < kReplicas * kRanks; ++i) places_.push_back(std::make_unique<Place>(i));
    for (size_t replica = 0; replica < kReplicas; ++replica) {
      const size_t first = replica * kRanks;
      auto meshes =
          sums_.emplace_back(std::vector{device_of(first), device_of(first + 1)}).make_meshes();
      for (size_t rank = 0; rank < kRanks; ++rank)
        places_[first + rank]->mesh = std::move(meshes[rank]);
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      DeviceGroup group(std::vector{device_of(rank), device_of(kRanks + rank)});
      const auto exchanges = group.make_exchanges();
      for (size_t replica = 0; replica < kReplicas; ++replica)
        places_[replica * kRanks + rank]->mesh.experts = exchanges[replica];
    }
  }
  // Calls work(its number, place) on a thread for each, those of replica 0 first.
  void on_all(const std::function<void(size_t, Place&)>& work) {
    std::vector<std::thread> threads;
    threads.reserve(places_.size());
    for (size_t i = 0; i < places_.size(); ++i)
      threads.emplace_back([&, i] {
        places_[i]->ops->bind_thread();
        work(i, *places_[i]);
      });
    for (std::thread& thread : threads) thread.join();
  }
  void begin_service() {
    for (DeviceGroup& group : sums_) group.begin_service();
    on_all([](size_t, Place& place) { place.mesh.experts->begin_service(); });
  }
  using Rows = std::array<int64_t, kReplicas>;
  void check_mixture(const Rows& rows, int64_t cols, uint64_t seed);

  std::vector<DeviceGroup> sums_;
  std::vector<std::unique_ptr<Place>> places_;
};

// What ranks do around a mixture: rows come together, each rank adds a part of its own to all of
// them, sums go back, and the ranks of the replica add them up. The replicas have so many rows.
void TwoGroupsTest::check_mixture(const Rows& rows, int64_t cols, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << rows[0] << " and " << rows[1] << " rows of " << cols);
  const int64_t sum = rows[0] + rows[1];
  std::vector<std::vector<float>> own, parts;
  for (const int64_t count : rows) own.push_back(random_values(++seed, count * cols));
  for (size_t i = 0; i < places_.size(); ++i) parts.push_back(random_values(++seed, sum * cols));
  std::vector<std::vector<float>> together(places_.size()), got(places_.size());
  on_all([&](size_t i, Place& at) {
    const int64_t mine = rows[i / kRanks];
    at.arena.reset();
    at.mesh.experts->expect(comm::RowsOfRanks{.most = std::max(rows[0], rows[1]), .sum = sum});
    const Tensor x = at.take(own[i / kRanks], mine, cols), part = at.take(parts[i], sum, cols);
    const Tensor all = at.mesh.experts->dispatch(x, at.arena, *at.ops);
    const Tensor back = at.mesh.experts->combine(part, mine, at.arena, *at.ops);
    at.mesh.tp->all_reduce(back, *at.ops);
    together[i] = at.read(all);
    got[i] = at.read(back);
  });
  std::vector<float> all = own[0];
  all.insert(all.end(), own[1].begin(), own[1].end());
  for (size_t i = 0; i < places_.size(); ++i) {
    EXPECT_EQ(together[i], all);
    const size_t begin = i < kRanks ? 0 : own[0].size();
    for (size_t k = 0; k < own[i / kRanks].size(); ++k) {
      float total = 0;
      for (size_t rank = 0; rank < kRanks; ++rank)
        total += parts[rank][begin + k] + parts[kRanks + rank][begin + k];
      ASSERT_EQ(got[i][k], total) << "element " << k << " at place " << i;
    }
  }
}

// Before and after service begins. On one device no kernel may be loaded while another rank's
// waits, so what the first rounds load is what the later ones use.
TEST_F(TwoGroupsTest, RowsAndSumsCrossEachOther) {
  const std::vector<Rows> of_round = {{3, 3}, {1, 7}, {20, 1}, {0, 5}, {6, 0}};
  for (const Rows& rows : of_round)
    for (const int64_t cols : {8, 1024}) check_mixture(rows, cols, 1);
  begin_service();
  std::mt19937_64 rng(2);
  for (int round = 0; round < 60 && !HasFatalFailure(); ++round)
    check_mixture(of_round[rng() % of_round.size()], rng() % 2 ? 8 : 1024, rng());
}

// A rank that fails ends both of its groups; whoever waits in either leaves, and so do those that
// wait for these.
TEST_F(TwoGroupsTest, EndedGroupsAreLeft) {
  check_mixture({1, 1}, 1024, 1);
  begin_service();
  on_all([&](size_t i, Place& at) {
    const auto end = [&at] {
      at.mesh.tp->abort("out of ideas");
      at.mesh.experts->abort("out of ideas");
    };
    if (i == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return end();
    }
    at.arena.reset();
    at.mesh.experts->expect({});
    const Tensor x = at.take(random_values(1, 1024), 1, 1024);
    try {
      for (;;) {
        const Tensor all = at.mesh.experts->dispatch(x, at.arena, *at.ops);
        const Tensor back = at.mesh.experts->combine(all, 1, at.arena, *at.ops);
        at.mesh.tp->all_reduce(back, *at.ops);
        at.read(back);
      }
    } catch (const comm::GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "out of ideas");
      end();
    }
  });
}

}  // namespace
}  // namespace skiff::devices
