// bench/comm/all_reduce_bench.cc -- the fused all-reduce, residual and norm of ranks on CUDA
// devices: through their memory, each rank sending all rows to all ranks or to their owners; and
// through NCCL, where it moves the same bytes as it does between processes. Beside NCCL's own
// all-reduce followed by the same norm. Each call depends on the one before.
//
// bench_all_reduce [--ranks N] [--cols C] [--replays R] [--no-nccl]
//
// First every size is checked: the results of the ranks and of our four ways are equal bit for bit,
// and those of NCCL's sums are near them. --replays R then replays one recorded call R times while
// another thread allocates and frees page-locked memory, and reports the time of each.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/devices/group.h"
#include "comm/nccl/group.h"
#include "flags.h"
#include "ops/cuda/backend.h"
#include "ops/cuda/check.h"
#include "tensor/device_memory.h"

namespace skiff::devices::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = num_cuda_devices();
  int64_t cols = 8192;
  int64_t replays = 0;
  bool nccl = true;
};

constexpr int kCalls = 40;   // in a recorded step
constexpr int kRounds = 15;  // the median counts

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

// The tensors of one rank: delta is bf16, and so is out, which is the delta of the next call.
struct Rank {
  Rank(int rank, int64_t rows, int64_t cols, Ops& on)
      : ops(on),
        memory(on.device(), static_cast<size_t>(rows * cols) * 8 + static_cast<size_t>(cols) * 4),
        residual(memory.view(DType::kF32, {rows, cols})),
        a(memory.view(DType::kBF16, {rows, cols}, static_cast<size_t>(rows * cols) * 4)),
        b(memory.view(DType::kBF16, {rows, cols}, static_cast<size_t>(rows * cols) * 6)),
        weight(memory.view(DType::kF32, {cols}, static_cast<size_t>(rows * cols) * 8)),
        delta_values(
            random_floats(static_cast<size_t>(rows * cols), 7 + static_cast<uint32_t>(rank))),
        residual_values(random_floats(static_cast<size_t>(rows * cols), 1)) {
    const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
    fill(weight.reshaped({1, cols}), ones);
    reset();
  }
  void fill(Tensor to, const std::vector<float>& values) {
    ops.copy(to,
             host_tensor(const_cast<float*>(values.data()), DType::kF32, {to.rows(), to.cols()}));
    ops.wait(ops.mark());
  }
  void reset() {
    fill(residual, residual_values);
    fill(a, delta_values);
  }
  std::vector<uint16_t> result() {
    std::vector<uint16_t> out(static_cast<size_t>(b.elements()));
    ops.copy(host_tensor(out.data(), DType::kBF16, {b.rows(), b.cols()}), b);
    ops.wait(ops.mark());
    return out;
  }
  Norm norm() const { return {.weight = weight, .eps = 1e-5f}; }

  Ops& ops;
  Buffer memory;
  Tensor residual, a, b, weight;
  const std::vector<float> delta_values, residual_values;
};

enum class Way { kToAll, kToOwners, kGathered, kDealt, kNccl };
constexpr int kOwnWays = 4;

struct Ways {
  std::array<comm::Communicator*, kOwnWays> own;
  ncclComm_t nccl;
};

void need(ncclResult_t result) {
  if (result != ncclSuccess) {
    fmt::print("NCCL: {}\n", ncclGetErrorString(result));
    std::exit(1);
  }
}

void call(const Ways& ways, Way way, Rank& rank, Tensor to, Tensor from) {
  if (way != Way::kNccl)
    return ways.own[static_cast<size_t>(way)]->reduce_add_norm(to, rank.residual, from, rank.norm(),
                                                               comm::ResidualUse::kSums, rank.ops);
  const cudaStream_t stream = static_cast<cuda::CudaOps&>(rank.ops).queue();
  need(ncclAllReduce(from.data, from.data, static_cast<size_t>(from.elements()), ncclBfloat16,
                     ncclSum, ways.nccl, stream));
  rank.ops.add_norm(to, rank.residual, from, rank.norm());
}

struct Measured {
  std::vector<std::vector<uint16_t>> results;  // the first call's, by rank
  double us = 0;                               // a call's time, the slowest rank's median
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        all_(0, options.ranks, std::numeric_limits<int64_t>::max()),
        owners_(0, options.ranks, 0),
        nccl_(static_cast<size_t>(options.ranks)),
        barrier_(options.ranks) {
    for (int rank = 0; rank < options.ranks; ++rank)
      ops_.push_back(make_cuda_ops({.device = rank, .max_seqs = 8, .max_rows = 64}));
    meshes_[0] = all_.make_meshes();
    meshes_[1] = owners_.make_meshes();
    if (options.nccl) {
      for (const int64_t owners_from : {std::numeric_limits<int64_t>::max(), int64_t{0}}) {
        auto& group = groups_.emplace_back(std::make_unique<nccl::Group>(
            nccl::Group::Settings{.ranks = options.ranks, .owners_from = owners_from}));
        meshes_[1 + groups_.size()] =
            group->connect(group->make_id(), comm::make_threads(options.ranks));
      }
    }
    if (options.nccl) need(ncclCommInitAll(nccl_.data(), options.ranks, nullptr));
    fmt::print("{} devices; bf16, {} columns; {} calls in a recorded step, median of {}\n",
               options.ranks, options.cols, kCalls, kRounds);
  }

  // Fewer rows than ranks have no owners: the way to all ranks serves them.
  void table() {
    fmt::print("{:>10} {:>10} {:>13} {:>12} {:>9} {:>9} {:>7} {:>11}\n", "bytes", "to all us",
               "to owners us", "gathered us", "dealt us", "NCCL us", "ratio", "GB/s a way");
    for (int64_t rows = 1; rows * options_.cols * 2 <= (int64_t{64} << 20); rows *= 2) {
      const Measured all = measure(rows, Way::kToAll), owners = measure(rows, Way::kToOwners);
      const auto measured = [&](Way way) { return options_.nccl ? measure(rows, way) : all; };
      const Measured gathered = measured(Way::kGathered), dealt = measured(Way::kDealt);
      const Measured nccl = measured(Way::kNccl);
      check({all, owners, gathered, dealt}, nccl);
      const double to_all = static_cast<double>(rows * options_.cols) * 2 * (options_.ranks - 1);
      const double to_owners = rows < options_.ranks ? to_all : 2 * to_all / options_.ranks;
      const double gb_s = (all.us < owners.us ? to_all / all.us : to_owners / owners.us) / 1e3;
      fmt::print("{:>10} {:>10.2f} {:>13.2f} {:>12.2f} {:>9.2f} {:>9.2f} {:>7.2f} {:>11.1f}\n",
                 rows * options_.cols * 2, all.us, owners.us, gathered.us, dealt.us, nccl.us,
                 nccl.us / std::min(all.us, owners.us), gb_s);
    }
  }

  // Replays while another thread allocates what the driver shares among devices.
  void replay_long() {
    std::atomic<bool> over = false;
    int64_t allocations = 0;
    std::thread other([&] {
      for (; !over; ++allocations) {
        const Buffer memory = Buffer::pinned(size_t{1} << (12 + allocations % 12));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    const auto start = Clock::now();
    on_all(
        [&](int index, Rank& rank, const Ways& ways) {
          const ReplayKey key{.rows = 9999, .rows_per_seq = 1, .variant = 1};
          const auto work = [&] { call(ways, Way::kToAll, rank, rank.b, rank.a); };
          rank.ops.replay(key, work);
          barrier_.arrive_and_wait();
          for (int64_t i = 0; i < options_.replays; ++i) {
            rank.ops.replay(key, work);
            if (i % 32 == 31) rank.ops.wait(rank.ops.mark() - 1);
          }
          rank.ops.wait(rank.ops.mark());
          (void)index;
        },
        1);
    over = true;
    other.join();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fmt::print("{} replays beside {} allocations of page-locked memory: {:.1f} s, {:.2f} us each\n",
               options_.replays, allocations, seconds,
               seconds / static_cast<double>(options_.replays) * 1e6);
  }

  void begin_service() {
    all_.begin_service();
    owners_.begin_service();
    for (const auto& group : groups_) group->begin_service();
  }

 private:
  template <class F>
  void on_all(F work, int64_t rows) {
    std::vector<std::thread> threads;
    for (int index = 0; index < options_.ranks; ++index)
      threads.emplace_back([&, index] {
        const auto at = static_cast<size_t>(index);
        ops_[at]->bind_thread();
        Rank rank(index, rows, options_.cols, *ops_[at]);
        barrier_.arrive_and_wait();
        Ways ways{.own = {}, .nccl = nccl_[at]};
        for (size_t way = 0; way < meshes_.size(); ++way)
          if (!meshes_[way].empty()) ways.own[way] = meshes_[way][at].tp.get();
        work(index, rank, ways);
      });
    for (std::thread& thread : threads) thread.join();
  }

  Measured measure(int64_t rows, Way way) {
    const auto ranks = static_cast<size_t>(options_.ranks);
    Measured out{.results = std::vector<std::vector<uint16_t>>(ranks)};
    std::vector<double> us(ranks);
    on_all(
        [&](int index, Rank& rank, const Ways& ways) {
          call(ways, way, rank, rank.b, rank.a);
          out.results[static_cast<size_t>(index)] = rank.result();
          rank.reset();
          const ReplayKey key{.rows = static_cast<int>(rows),
                              .rows_per_seq = 1,
                              .variant = 2 + static_cast<int>(way)};
          const auto work = [&] {
            for (int i = 0; i < kCalls; i += 2) {
              call(ways, way, rank, rank.b, rank.a);
              call(ways, way, rank, rank.a, rank.b);
            }
          };
          rank.ops.replay(key, work);
          rank.ops.wait(rank.ops.mark());
          barrier_.arrive_and_wait();
          std::vector<double> times;
          for (int i = 0; i < kRounds + 2; ++i) {
            const uint64_t from = rank.ops.stamp();
            rank.ops.replay(key, work);
            const uint64_t to = rank.ops.stamp();
            rank.ops.wait(rank.ops.mark());
            if (i >= 2) times.push_back(rank.ops.seconds_between(from, to) / kCalls * 1e6);
            barrier_.arrive_and_wait();
          }
          std::ranges::nth_element(times, times.begin() + kRounds / 2);
          us[static_cast<size_t>(index)] = times[kRounds / 2];
        },
        rows);
    out.us = *std::ranges::max_element(us);
    return out;
  }

  // NCCL rounds a sum of bf16 once for each rank that it adds, so the norms may differ by a few
  // steps of bf16, which are 2^-8 of values around 1.
  static void check(const std::vector<Measured>& own, const Measured& nccl) {
    const Measured& ours = own.front();
    const auto value = [](uint16_t x) {
      return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
    };
    for (const Measured& way : own)
      for (const auto& result : way.results)
        if (result != ours.results[0]) fail("ranks, or ways, give other bits");
    for (size_t i = 0; i < ours.results[0].size(); ++i) {
      const float a = value(ours.results[0][i]), b = value(nccl.results[0][i]);
      if (!(std::abs(a - b) <= 0.03f * (1 + std::abs(a)))) fail("NCCL's sums differ");
    }
  }
  static void fail(const char* why) {
    fmt::print("WRONG: {}\n", why);
    std::exit(1);
  }

  const Options options_;
  DeviceGroup all_, owners_;
  std::vector<std::unique_ptr<nccl::Group>> groups_;
  std::array<std::vector<comm::Mesh>, kOwnWays> meshes_;  // by Way
  std::vector<ncclComm_t> nccl_;
  std::vector<std::unique_ptr<Ops>> ops_;
  std::barrier<> barrier_;
};

Options parse(int argc, char** argv) {
  Options options;
  read_flags(argc, argv,
             {{"--ranks", &options.ranks},
              {"--cols", &options.cols},
              {"--replays", &options.replays},
              {"--no-nccl", &options.nccl}});
  return options;
}

}  // namespace
}  // namespace skiff::devices::bench

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);  // all as skiff does
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
  setenv("NCCL_GRAPH_REGISTER", "0", 1);
  const auto options = skiff::devices::bench::parse(argc, argv);
  skiff::devices::bench::Bench bench(options);
  bench.begin_service();
  bench.table();
  if (options.replays > 0) bench.replay_long();
}
