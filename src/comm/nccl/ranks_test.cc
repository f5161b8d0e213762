// Collectives over NCCL beside those of a group that exchanges through the memory of its devices.
// Needs two devices; elsewhere it only checks what a user is told.
#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "comm/devices/group.h"
#include "comm/nccl/group.h"
#include "ops/ops.h"
#include "tensor/device_memory.h"

namespace skiff::nccl {
namespace {

TEST(NcclGroup, SaysWhyThereCanBeNone) {
  EXPECT_THAT(why_impossible(), ::testing::AnyOf("", ::testing::HasSubstr("libnccl.so.2"),
                                                 ::testing::HasSubstr("built without CUDA")));
}

// Some of the random data has the pattern of an empty mailbox of the other group (exchange.h).
template <class T>
std::vector<T> random_of(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<T> out(n);
  for (T& x : out) {
    const float value = normal(rng);
    const bool odd = rng() % 50 == 0;
    if constexpr (sizeof(T) == 2)
      x = odd ? 0x8000 : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    else
      x = odd ? std::bit_cast<float>(0x80008000u) : value;
  }
  return out;
}

// A rank's tensor on its device, of rows that lie `stride` elements apart.
template <class T>
struct OnDevice {
  OnDevice(Ops& own, const std::vector<T>& values, int64_t rows, int64_t cols)
      : ops(own),
        memory(ops.device(), values.size() * sizeof(T)),
        tensor(memory.view(sizeof(T) == 2 ? DType::kBF16 : DType::kF32, {rows, cols})) {
    ops.copy(tensor, host_tensor(const_cast<T*>(values.data()), tensor.dtype, {rows, cols}));
    ops.wait(ops.mark());
  }
  std::vector<T> read() const {
    std::vector<T> out(static_cast<size_t>(tensor.elements()));
    ops.copy(host_tensor(out.data(), tensor.dtype, {tensor.rows(), tensor.cols()}), tensor);
    ops.wait(ops.mark());
    return out;
  }
  Ops& ops;
  Buffer memory;
  Tensor tensor;
};

constexpr int64_t kNoOwners = int64_t{1} << 40;

// Both groups are of the same devices and threads.
class NcclRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    size_ = num_cuda_devices();
    if (size_ < 2) GTEST_SKIP() << "there are " << size_ << " CUDA devices; it takes two";
    if (const std::string why = why_impossible(); !why.empty()) GTEST_SKIP() << why;
    setenv("NCCL_NVLS_ENABLE", "0", 1);  // all as apps/main.cc does
    setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
    size_ = std::min(size_, devices::DeviceGroup::kMaxSize);
    for (int rank = 0; rank < size_; ++rank)
      ops_.push_back(make_cuda_ops({.device = rank, .max_seqs = 8, .max_rows = 64}));
  }

  void start(int64_t owners_from) {
    meshes_.clear();
    group_.emplace(Group::Settings{.ranks = size_, .owners_from = owners_from});
    meshes_ = group_->connect(group_->make_id(), comm::make_threads(size_));
  }
  void start_peers() {
    peers_.emplace(0, size_);
    peer_meshes_ = peers_->make_meshes();
  }

  // Calls work(rank, its group, its Ops) on a thread for each rank.
  template <class F>
  void on_all(std::vector<comm::Mesh>& meshes, F work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < meshes.size(); ++rank)
      threads.emplace_back([&, rank] {
        ops_[rank]->bind_thread();
        work(rank, *meshes[rank].tp, *ops_[rank]);
      });
    for (std::thread& thread : threads) thread.join();
  }

  template <class T>
  struct Sums {
    std::vector<std::vector<T>> out;
    std::vector<std::vector<float>> residual;
  };
  template <class T>
  Sums<T> sums(std::vector<comm::Mesh>& meshes, int64_t rows, int64_t cols, comm::ResidualUse use);
  template <class T>
  void compare(int64_t rows, int64_t cols, comm::ResidualUse use);

  int size_ = 0;
  std::optional<devices::DeviceGroup> peers_;
  std::optional<Group> group_;
  std::vector<comm::Mesh> peer_meshes_, meshes_;
  std::vector<std::unique_ptr<Ops>> ops_;
};

// Three sums over the same rows, each adding the norm of the one before.
template <class T>
NcclRanksTest::Sums<T> NcclRanksTest::sums(std::vector<comm::Mesh>& meshes, int64_t rows,
                                           int64_t cols, comm::ResidualUse use) {
  const auto n = static_cast<size_t>(rows * cols);
  const auto residual = random_of<float>(n, 1), weight = random_of<float>(cols, 2);
  Sums<T> got{.out = std::vector<std::vector<T>>(meshes.size()),
              .residual = std::vector<std::vector<float>>(meshes.size())};
  on_all(meshes, [&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_of<T>(n, 10 + static_cast<uint32_t>(rank));
    const OnDevice<float> x(ops, residual, rows, cols), w(ops, weight, 1, cols);
    const OnDevice<T> delta(ops, values, rows, cols), out(ops, values, rows, cols);
    const Norm norm{.weight = w.tensor.reshaped({cols}), .eps = 1e-6f};
    for (const bool back : {false, true, false})
      group.reduce_add_norm(back ? delta.tensor : out.tensor, x.tensor,
                            back ? out.tensor : delta.tensor, norm, use, ops);
    got.residual[rank] = x.read();
    got.out[rank] = out.read();
  });
  return got;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// With owners each row of a residual is up to date on one rank, whose bits all have elsewhere.
template <class T>
void NcclRanksTest::compare(int64_t rows, int64_t cols, comm::ResidualUse use) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", " << sizeof(T) << " bytes");
  const Sums<T> expected = sums<T>(peer_meshes_, rows, cols, comm::ResidualUse::kAny);
  const Sums<T> got = sums<T>(meshes_, rows, cols, use);
  for (size_t rank = 0; rank < meshes_.size(); ++rank) {
    EXPECT_TRUE(same(got.out[rank], expected.out[0])) << "rank " << rank;
    if (use == comm::ResidualUse::kSums) continue;
    EXPECT_TRUE(same(got.residual[rank], expected.residual[0])) << "rank " << rank;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row * cols), bytes = static_cast<size_t>(cols) * 4;
    EXPECT_TRUE(std::ranges::any_of(got.residual,
                                    [&](const std::vector<float>& residual) {
                                      return std::memcmp(&residual[at], &expected.residual[0][at],
                                                         bytes) == 0;
                                    }))
        << "row " << row;
  }
}

TEST_F(NcclRanksTest, SumsAndNormsAreThoseOfPeerMemory) {
  start_peers();
  for (const bool served : {false, true}) {
    start(kNoOwners);
    if (served) peers_->begin_service();
    if (served) group_->begin_service();
    for (const int64_t cols : {8, 50, 4096, 7168})
      for (const int64_t rows : {1, 7, 64, 200}) {
        compare<float>(rows, cols, comm::ResidualUse::kAny);
        compare<uint16_t>(rows, cols, comm::ResidualUse::kAny);
      }
    compare<uint16_t>(1500, 4096, comm::ResidualUse::kAny);  // in two pieces
    for (const int64_t cols : {12'288, 16'384}) compare<uint16_t>(3, cols, comm::ResidualUse::kAny);
  }
}

TEST_F(NcclRanksTest, OwnersOfRowsGiveTheSameBits) {
  start_peers();
  start(/*owners_from=*/0);
  peers_->begin_service();
  group_->begin_service();
  for (const int64_t cols : {8, 50, 4096, 7168})
    for (const int64_t rows : {1, 2, 7, 64, 203}) {
      compare<float>(rows, cols, comm::ResidualUse::kSums);
      compare<uint16_t>(rows, cols, comm::ResidualUse::kSums);
    }
  compare<uint16_t>(size_ * 512 * 2 + 1, 8192, comm::ResidualUse::kSums);  // in pieces
}

// Row i of a batch has the same bits whatever the batch, also where its rows are parts of longer
// ones, and they are those of the other group.
TEST_F(NcclRanksTest, RowsDoNotDependOnTheBatch) {
  start_peers();
  start(kNoOwners);
  constexpr int64_t kRows = 200, kCols = 2048;
  std::vector<std::vector<uint16_t>> wholes(static_cast<size_t>(size_));
  on_all(peer_meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_of<uint16_t>(kRows * kCols, 20 + static_cast<uint32_t>(rank));
    const OnDevice<uint16_t> x(ops, values, kRows, kCols);
    group.all_reduce(x.tensor, ops);
    wholes[rank] = x.read();
  });
  on_all(meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_of<uint16_t>(kRows * kCols, 20 + static_cast<uint32_t>(rank));
    for (const int64_t batch : {1, 7, 64, 200}) {
      const OnDevice<uint16_t> parts(ops, values, kRows, kCols);
      for (int64_t row = 0; row < kRows; row += batch) {
        const Tensor some = parts.tensor.row_range(row, std::min(batch, kRows - row));
        group.all_reduce(some.col_range(0, 1000), ops);
        group.all_reduce(some.col_range(1000, kCols - 1000), ops);
      }
      EXPECT_EQ(parts.read(), wholes[0]) << batch;
    }
  });
}

TEST_F(NcclRanksTest, Gathers) {
  start_peers();
  start(kNoOwners);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 5}, {7, 4000}, {70, 50'000}}) {
    std::vector<std::vector<float>> expected(meshes_.size());
    const auto gathered = [&, rows = rows, cols = cols](size_t rank, comm::Communicator& group,
                                                        Ops& ops) {
      const int64_t all = cols * size_;
      const OnDevice<float> out(ops, random_of<float>(static_cast<size_t>(rows * all), 30 + rank),
                                rows, all);
      group.all_gather(out.tensor, out.tensor.col_range(cols * group.rank(), cols), ops);
      return out.read();
    };
    on_all(peer_meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
      expected[rank] = gathered(rank, group, ops);
    });
    on_all(meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
      EXPECT_TRUE(same(gathered(rank, group, ops), expected[0])) << rows << " x " << cols;
    });
  }
}

// Replayed collectives, with others of another size between them, give what the first call gave.
TEST_F(NcclRanksTest, Replays) {
  start(/*owners_from=*/64 << 10);
  constexpr int kReplays = 1000;
  constexpr int64_t kRows = 16, kCols = 4096;
  std::vector<int> wrong(meshes_.size());
  on_all(meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_of<uint16_t>(kRows * kCols, 40 + static_cast<uint32_t>(rank));
    const OnDevice<float> residual(ops, random_of<float>(kRows * kCols, 41), kRows, kCols);
    const OnDevice<float> weight(ops, random_of<float>(kCols, 42), 1, kCols);
    const OnDevice<uint16_t> from(ops, values, kRows, kCols), x(ops, values, kRows, kCols);
    const OnDevice<uint16_t> out(ops, values, kRows, kCols), other(ops, values, kRows, kCols);
    const OnDevice<float> kept(ops, random_of<float>(kRows * kCols, 41), kRows, kCols);
    const Norm norm{.weight = weight.tensor.reshaped({kCols}), .eps = 1e-6f};
    const auto work = [&] {
      ops.copy(x.tensor, from.tensor);
      ops.copy(residual.tensor, kept.tensor);
      group.all_reduce(x.tensor, ops);
      group.reduce_add_norm(out.tensor, residual.tensor, x.tensor, norm, comm::ResidualUse::kSums,
                            ops);
    };
    const ReplayKey key{.rows = kRows, .rows_per_seq = 1};
    work();
    const auto expected = out.read();
    ops.replay(key, work);
    ops.replay(key, work);
    group.least(0);
    if (rank == 0) group_->begin_service();
    group.least(0);
    for (int i = 0; i < kReplays; ++i) {
      ops.replay(key, work);
      if (i % 3 == 0) group.all_reduce(other.tensor.row_range(0, 1 + i % kRows), ops);
      if (i % 100 == 0) wrong[rank] += out.read() != expected;
    }
  });
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

// A rank that waits for one that is gone leaves.
TEST_F(NcclRanksTest, AnEndedGroupIsLeft) {
  start(kNoOwners);
  group_->begin_service();
  std::latch waiting(size_);  // all but rank 1 have started a collective
  on_all(meshes_, [&](size_t rank, comm::Communicator& group, Ops& ops) {
    if (rank == 1) {
      waiting.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return group.abort("rank 1: out of ideas");
    }
    const OnDevice<float> x(ops, random_of<float>(4096, 60), 1, 4096);
    group.all_reduce(x.tensor, ops);
    waiting.count_down();
    x.read();
    try {
      group.all_reduce(x.tensor, ops);
      ADD_FAILURE() << "rank " << rank << " went on";
    } catch (const comm::GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "rank 1: out of ideas");
    }
  });
}

}  // namespace
}  // namespace skiff::nccl
