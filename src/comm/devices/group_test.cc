// Collectives of several CUDA devices against sums on the host. Needs two devices; elsewhere it
// only checks what a user is told.
#include "comm/devices/group.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "base/load_error.h"
#include "ops/ops.h"
#include "tensor/convert.h"
#include "tensor/device_memory.h"

namespace skiff::devices {
namespace {

using ::testing::HasSubstr;

TEST(DeviceGroupTest, MoreRanksThanDevicesAreRefused) {
  try {
    DeviceGroup group(num_cuda_devices(), 2);
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("2 ranks need CUDA devices"),
                                               HasSubstr("built without CUDA")));
  }
}

// The word is the pattern of an empty mailbox, so some of the random data has it.
std::vector<uint16_t> random_bf16(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> out(n);
  for (uint16_t& x : out) {
    const auto bits = std::bit_cast<uint32_t>(normal(rng));
    x = rng() % 50 == 0 ? 0x8000 : static_cast<uint16_t>(bits >> 16);
  }
  return out;
}

std::vector<float> random_f32(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = rng() % 50 == 0 ? std::bit_cast<float>(0x80008000u) : normal(rng);
  return out;
}

float widened(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
float widened(float x) { return x; }
// What arrives instead of the pattern of an empty mailbox.
float sent(float x) { return std::bit_cast<uint32_t>(x) == 0x80008000u ? -0.0f : x; }

// A rank's tensor on its device.
template <class T>
struct OnDevice {
  OnDevice(Ops& ops, const std::vector<T>& values, int64_t rows, int64_t cols)
      : memory(ops.device(), values.size() * sizeof(T)),
        tensor(memory.view(sizeof(T) == 2 ? DType::kBF16 : DType::kF32, {rows, cols})) {
    write(ops, values);
  }
  void write(Ops& ops, const std::vector<T>& values) {
    ops.copy(tensor, host_tensor(const_cast<T*>(values.data()), tensor.dtype,
                                 {tensor.rows(), tensor.cols()}));
    ops.wait(ops.mark());
  }
  std::vector<T> read(Ops& ops) const {
    std::vector<T> out(static_cast<size_t>(tensor.elements()));
    ops.copy(host_tensor(out.data(), tensor.dtype, {tensor.rows(), tensor.cols()}), tensor);
    ops.wait(ops.mark());
    return out;
  }
  Buffer memory;
  Tensor tensor;
};

class DeviceRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    size_ = num_cuda_devices();
    if (size_ < 2) GTEST_SKIP() << "there are " << size_ << " CUDA devices; it takes two";
    size_ = std::min(size_, DeviceGroup::kMaxSize);
    start();
    for (int rank = 0; rank < size_; ++rank)
      ops_.push_back(make_cuda_ops({.device = rank, .max_seqs = 8, .max_rows = 64}));
  }

  void start(std::optional<int64_t> owners_from = {}) {
    meshes_.clear();
    group_.emplace(0, size_, owners_from.value_or(DeviceGroup::owners_from(size_)));
    meshes_ = group_->make_meshes();
  }

  // Calls work(rank, its group, its Ops) on a thread for each rank.
  template <class F>
  void on_all(F work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < meshes_.size(); ++rank)
      threads.emplace_back([&, rank] {
        ops_[rank]->bind_thread();
        work(rank, *meshes_[rank].tp, *ops_[rank]);
      });
    for (std::thread& thread : threads) thread.join();
  }

  template <class T>
  void check_add_norm(int64_t rows, int64_t cols);
  template <class T>
  void check_owners(int64_t rows, int64_t cols);

  int size_ = 0;
  std::optional<DeviceGroup> group_;
  std::vector<comm::Mesh> meshes_;
  std::vector<std::unique_ptr<Ops>> ops_;
};

template <class T>
std::vector<T> random_of(size_t n, uint32_t seed) {
  if constexpr (sizeof(T) == 2)
    return random_bf16(n, seed);
  else
    return random_f32(n, seed);
}

// The sum is exact but for the additions in f32, which the host repeats; the norm is rounded to T
// after a handful of roundings of 2^-24 each, which the tolerance of 2^-8 or 2^-18 covers.
template <class T>
void DeviceRanksTest::check_add_norm(int64_t rows, int64_t cols) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", " << sizeof(T) << " bytes");
  const auto n = static_cast<size_t>(rows * cols);
  const std::vector<float> residual = random_f32(n, 1), weight = random_f32(cols, 2);
  std::vector<std::vector<T>> deltas, outs(meshes_.size());
  std::vector<std::vector<float>> residuals(meshes_.size());
  for (size_t rank = 0; rank < meshes_.size(); ++rank)
    deltas.push_back(random_of<T>(n, 10 + static_cast<uint32_t>(rank)));
  on_all([&](size_t rank, comm::Communicator& group, Ops& ops) {
    OnDevice<float> x(ops, residual, rows, cols), w(ops, weight, 1, cols);
    OnDevice<T> delta(ops, deltas[rank], rows, cols), out(ops, deltas[rank], rows, cols);
    const Norm norm{.weight = w.tensor.reshaped({cols}), .eps = 1e-6f};
    group.reduce_add_norm(out.tensor, x.tensor, delta.tensor, norm, comm::ResidualUse::kAny, ops);
    residuals[rank] = x.read(ops);
    outs[rank] = out.read(ops);
  });
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      float sum = 0;
      for (const auto& delta : deltas) sum += sent(widened(delta[i]));
      const float expected = residual[i] + sum;
      squares += double{expected} * expected;
      ASSERT_EQ(residuals[0][i], expected) << "row " << r << ", column " << c;
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-6);
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      const double expected = residuals[0][i] * scale * weight[static_cast<size_t>(c)];
      const double tolerance = std::abs(expected) * (sizeof(T) == 2 ? 0x1p-8 : 0x1p-18) + 1e-30;
      ASSERT_NEAR(widened(outs[0][i]), expected, tolerance) << "row " << r << ", column " << c;
    }
  }
  for (size_t rank = 1; rank < meshes_.size(); ++rank) {
    EXPECT_EQ(std::memcmp(residuals[rank].data(), residuals[0].data(), n * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(outs[rank].data(), outs[0].data(), n * sizeof(T)), 0);
  }
}

TEST_F(DeviceRanksTest, SumsAndNorms) {
  for (const bool served : {false, true}) {
    if (served) group_->begin_service();
    for (const int64_t cols : {8, 50, 4096, 7168})
      for (const int64_t rows : {1, 7, 64, 200}) {
        check_add_norm<float>(rows, cols);
        check_add_norm<uint16_t>(rows, cols);
      }
    check_add_norm<uint16_t>(1500, 4096);  // in two pieces
    // Rows of 48 KB as floats: all the shared memory that a block has without asking.
    for (const int64_t cols : {12'288, 16'384}) check_add_norm<uint16_t>(3, cols);
  }
}

// Three sums over the same rows, each adding the norm of the one before, as all ranks and as owners
// compute them: the same bits, and the residual's too where a rank owns the row.
template <class T>
void DeviceRanksTest::check_owners(int64_t rows, int64_t cols) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << cols << ", " << sizeof(T) << " bytes");
  const auto n = static_cast<size_t>(rows * cols);
  const std::vector<float> residual = random_f32(n, 1), weight = random_f32(cols, 2);
  std::vector<std::vector<T>> outs(meshes_.size());
  std::vector<std::vector<float>> residuals(meshes_.size());
  const auto run = [&](comm::ResidualUse use) {
    on_all([&](size_t rank, comm::Communicator& group, Ops& ops) {
      OnDevice<float> x(ops, residual, rows, cols), w(ops, weight, 1, cols);
      const auto values = random_of<T>(n, 10 + static_cast<uint32_t>(rank));
      OnDevice<T> delta(ops, values, rows, cols), out(ops, values, rows, cols);
      const Norm norm{.weight = w.tensor.reshaped({cols}), .eps = 1e-6f};
      for (const bool back : {false, true, false})
        group.reduce_add_norm(back ? delta.tensor : out.tensor, x.tensor,
                              back ? out.tensor : delta.tensor, norm, use, ops);
      residuals[rank] = x.read(ops);
      outs[rank] = out.read(ops);
    });
  };
  run(comm::ResidualUse::kAny);
  const std::vector<T> expected = outs[0];
  const std::vector<float> expected_residual = residuals[0];
  run(comm::ResidualUse::kSums);
  for (size_t rank = 0; rank < meshes_.size(); ++rank) {
    ASSERT_EQ(std::memcmp(outs[rank].data(), expected.data(), n * sizeof(T)), 0) << rank;
    for (size_t r = rank; r < static_cast<size_t>(rows); r += meshes_.size()) {
      const size_t at = r * static_cast<size_t>(cols);
      ASSERT_EQ(std::memcmp(&residuals[rank][at], &expected_residual[at],
                            static_cast<size_t>(cols) * sizeof(float)),
                0)
          << "rank " << rank << ", row " << r;
    }
  }
}

TEST_F(DeviceRanksTest, OwnersOfRowsGiveTheSameBits) {
  start(/*owners_from=*/0);
  group_->begin_service();
  for (const int64_t cols : {8, 50, 4096, 7168})
    for (const int64_t rows : {1, 2, 7, 64, 203}) {
      check_owners<float>(rows, cols);
      check_owners<uint16_t>(rows, cols);
    }
  // Two accesses of a thread, two groups of a cluster, more blocks than are resident, and pieces of
  // which the last one has one row.
  check_owners<uint16_t>(9, 16'384);
  check_owners<uint16_t>(int64_t{size_} * 150, 4096);
  check_owners<uint16_t>(1500, 4096);
  check_owners<uint16_t>(size_ * 512 + 1, 8192);
}

// Row i of a batch has the same bits whatever the batch, as have later calls with other sizes.
TEST_F(DeviceRanksTest, RowsDoNotDependOnTheBatch) {
  group_->begin_service();
  constexpr int64_t kRows = 200, kCols = 2048;
  std::vector<std::vector<uint16_t>> sums(meshes_.size());
  on_all([&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_bf16(kRows * kCols, 20 + static_cast<uint32_t>(rank));
    OnDevice<uint16_t> whole(ops, values, kRows, kCols);
    group.all_reduce(whole.tensor, ops);
    sums[rank] = whole.read(ops);
    for (const int64_t batch : {1, 7, 64}) {
      OnDevice<uint16_t> parts(ops, values, kRows, kCols);
      for (int64_t row = 0; row < kRows; row += batch)
        group.all_reduce(parts.tensor.row_range(row, std::min(batch, kRows - row)), ops);
      EXPECT_EQ(parts.read(ops), sums[rank]) << batch;
    }
  });
  for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST_F(DeviceRanksTest, Gathers) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 64128}, {5, 33}, {130, 32064}}) {
    std::vector<std::vector<float>> parts, outs(meshes_.size());
    for (size_t rank = 0; rank < meshes_.size(); ++rank)
      parts.push_back(
          random_f32(static_cast<size_t>(rows * cols), 30 + static_cast<uint32_t>(rank)));
    on_all([&, rows = rows, cols = cols](size_t rank, comm::Communicator& group, Ops& ops) {
      const int64_t all = cols * size_;
      OnDevice<float> out(ops, std::vector<float>(static_cast<size_t>(rows * all)), rows, all);
      OnDevice<float> mine(ops, parts[rank], rows, cols);
      const Tensor place = out.tensor.col_range(static_cast<int64_t>(rank) * cols, cols);
      ops.copy(place, mine.tensor);
      group.all_gather(out.tensor, place, ops);
      outs[rank] = out.read(ops);
    });
    for (size_t rank = 0; rank < meshes_.size(); ++rank) {
      ASSERT_EQ(std::memcmp(outs[rank].data(), outs[0].data(), outs[0].size() * 4), 0);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_FLOAT_EQ(
              outs[0][static_cast<size_t>((r * size_ + static_cast<int64_t>(rank)) * cols + c)],
              sent(parts[rank][static_cast<size_t>(r * cols + c)]));
    }
  }
}

// Replayed collectives, with others of another size between them, give what the first call gave.
TEST_F(DeviceRanksTest, Replays) {
  constexpr int kReplays = 2000;
  constexpr int64_t kRows = 3, kCols = 4096;
  std::vector<int> wrong(meshes_.size());
  on_all([&](size_t rank, comm::Communicator& group, Ops& ops) {
    const auto values = random_bf16(kRows * kCols, 40 + static_cast<uint32_t>(rank));
    OnDevice<uint16_t> from(ops, values, kRows, kCols), x(ops, values, kRows, kCols);
    OnDevice<uint16_t> other(ops, random_bf16(64 * kCols, 50), 64, kCols);
    const auto work = [&] {
      ops.copy(x.tensor, from.tensor);
      group.all_reduce(x.tensor, ops);
      group.all_reduce(x.tensor.row_range(0, 1), ops);
    };
    const ReplayKey key{.rows = kRows, .rows_per_seq = 1};
    work();
    const auto expected = x.read(ops);
    ops.replay(key, work);
    ops.replay(key, work);
    group.least(0);
    if (rank == 0) group_->begin_service();
    group.least(0);
    for (int i = 0; i < kReplays; ++i) {
      ops.replay(key, work);
      if (i % 3 == 0) group.all_reduce(other.tensor.row_range(0, 1 + i % 64), ops);
      if (i % 100 == 0) wrong[rank] += x.read(ops) != expected;
    }
  });
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

// A rank that waits for one that is gone leaves.
TEST_F(DeviceRanksTest, AnEndedGroupIsLeft) {
  group_->begin_service();
  std::latch waiting(size_);  // all but rank 1 have started a collective
  on_all([&](size_t rank, comm::Communicator& group, Ops& ops) {
    if (rank == 1) {
      waiting.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return group.abort("rank 1: out of ideas");
    }
    OnDevice<float> x(ops, random_f32(4096, 60), 1, 4096);
    group.all_reduce(x.tensor, ops);
    waiting.count_down();
    x.read(ops);
    try {
      group.all_reduce(x.tensor, ops);
      ADD_FAILURE() << "rank " << rank << " went on";
    } catch (const comm::GroupEnded& ended) {
      EXPECT_STREQ(ended.what(), "rank 1: out of ideas");
    }
  });
}

}  // namespace
}  // namespace skiff::devices
