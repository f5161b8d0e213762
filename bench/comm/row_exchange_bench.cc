// bench/comm/row_exchange_bench.cc -- rows of ranks on CUDA devices that come together, and the
// sums of what was made of them that go back: each element to a place of its own (`few`), or
// through rings
// (`many`).
//
// bench_row_exchange [--ranks N] [--cols C]
//
// First every size is checked, in both ways: random rows arrive with their bits, and sums are those
// of the host. Then calls are timed, recorded one behind the other.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/devices/member.h"
#include "flags.h"
#include "ops/cuda/check.h"
#include "tensor/convert.h"
#include "tensor/device_memory.h"

namespace skiff::devices::bench {
namespace {

struct Options {
  int ranks = num_cuda_devices();
  int64_t cols = 7168;
};

constexpr int kCalls = 20;   // in a recorded step
constexpr int kRounds = 11;  // the median counts
constexpr int64_t kMostRows = 4096;

struct Way {
  const char* name;
  void (*dispatch)(const Exchange&, const DispatchRows&, cudaStream_t);
  void (*combine)(const Exchange&, const CombineRows&, cudaStream_t);
  int64_t most_bytes;  // of a rank's rows
};
const std::vector<Way> kWays = {
    {"few", start_dispatch_rows, start_combine_rows, int64_t{kRowsBytes}},
    {"many", start_dispatch_many_rows, start_combine_many_rows, int64_t{1} << 40}};

[[noreturn]] void fail(const std::string& why) {
  fmt::print("WRONG: {}\n", why);
  std::exit(1);
}

using Bits = std::vector<uint16_t>;

// Any bits but those of infinities, and of what is no number.
Bits random_bits(int64_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Bits out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); i += 4) {
    const uint64_t four = rng();
    std::memcpy(&out[i], &four, std::min(sizeof(four), (out.size() - i) * sizeof(uint16_t)));
  }
  for (uint16_t& x : out)
    if ((x & 0x7f80) == 0x7f80) x &= 0xbfff;
  return out;
}
float value(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
uint16_t sent(uint16_t x) { return x == 0x8000 ? 0 : x; }  // what arrives

// One rank, with rows and parts for the largest size.
struct Rank {
  Rank(int rank, int ranks, int64_t cols, const DeviceGroup::Shared& shared)
      : ops(make_cuda_ops({.device = rank, .max_seqs = 8, .max_rows = 64})),
        exchange(shared.exchange(rank)),
        rows(ops->device(), bytes_of(kMostRows * cols)),
        sums(ops->device(), bytes_of(kMostRows * cols)),
        together(ops->device(), bytes_of(kMostRows * cols * ranks)),
        parts(ops->device(), bytes_of(kMostRows * cols * ranks)),
        starts(ops->device(), (kMaxDevices + 1) * sizeof(int32_t)),
        row_bits(random_bits(kMostRows * cols, 1 + static_cast<uint64_t>(rank))),
        part_bits(random_bits(kMostRows * cols * ranks, 100 + static_cast<uint64_t>(rank))) {
    put(rows, row_bits);
    put(parts, part_bits);
  }
  static size_t bytes_of(int64_t elements) {
    return static_cast<size_t>(elements) * sizeof(uint16_t);
  }
  static void put(const Buffer& to, const Bits& bits) {
    cuda::check(
        cudaMemcpy(to.data(), bits.data(), bits.size() * sizeof(bits[0]), cudaMemcpyDefault),
        "filling memory");
  }
  Bits get(const Buffer& from, int64_t elements) const {
    ops->wait(ops->mark());
    Bits bits(static_cast<size_t>(elements));
    cuda::check(cudaMemcpy(bits.data(), from.data(), bytes_of(elements), cudaMemcpyDefault),
                "reading memory");
    return bits;
  }
  void clear(const Buffer& memory) const {
    cuda::check(cudaMemset(memory.data(), 0x55, memory.size()), "clearing memory");
    cuda::check(cudaDeviceSynchronize(), "clearing memory");
  }

  void dispatch(const Way& way, int64_t n, int64_t cols) {
    way.dispatch(exchange,
                 {.out = matrix(together, cols),
                  .x = matrix(rows, cols),
                  .starts = reinterpret_cast<int32_t*>(starts.data()),
                  .rows = static_cast<int>(n),
                  .out_rows = static_cast<int>(n) * exchange.size,
                  .most = static_cast<int>(n),
                  .cols = static_cast<int>(cols)},
                 queue());
  }
  void combine(const Way& way, int64_t n, int64_t cols) {
    way.combine(exchange,
                {.out = matrix(sums, cols),
                 .parts = matrix(parts, cols),
                 .starts = reinterpret_cast<const int32_t*>(starts.data()),
                 .rows = static_cast<int>(n),
                 .most = static_cast<int>(n),
                 .cols = static_cast<int>(cols)},
                queue());
  }
  static cuda::Matrix matrix(const Buffer& memory, int64_t cols) {
    return {.data = memory.data(), .stride = cols, .type = cuda::Float::kBF16};
  }
  cudaStream_t queue() const { return static_cast<cuda::CudaOps&>(*ops).queue(); }

  std::unique_ptr<Ops> ops;
  const Exchange exchange;
  const Buffer rows, sums, together, parts, starts;
  const Bits row_bits, part_bits;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), shared_(devices(options.ranks), 0), barrier_(options.ranks) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      cuda::check(cudaSetDevice(rank), "choosing a device");
      ranks_.push_back(std::make_unique<Rank>(rank, options.ranks, options.cols, shared_));
    }
    fmt::print("{} devices; bf16, {} columns; {} calls in a recorded step, median of {}\n",
               options.ranks, options.cols, kCalls, kRounds);
  }

  void table() {
    fmt::print("{:>6} {:>12} {:>12} {:>10} {:>12} {:>10}\n", "rows", "way", "dispatch us", "GB/s",
               "combine us", "GB/s");
    for (const int64_t rows : {1, 2, 8, 32, 64, 128, 256, 512, 1024, 4096})
      for (const Way& way : kWays)
        if (rows * options_.cols * 2 <= way.most_bytes) line(way, rows);
  }

 private:
  static std::vector<int> devices(int ranks) {
    std::vector<int> out(static_cast<size_t>(ranks));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  void line(const Way& way, int64_t rows) {
    check(way, rows);
    const double sent = static_cast<double>(rows * options_.cols * 2 * (options_.ranks - 1));
    const double to = time(rows, [&](Rank& rank) { rank.dispatch(way, rows, options_.cols); });
    const double back = time(rows, [&](Rank& rank) { rank.combine(way, rows, options_.cols); });
    fmt::print("{:>6} {:>12} {:>12.2f} {:>10.1f} {:>12.2f} {:>10.1f}\n", rows, way.name, to,
               sent / to / 1e3, back, sent / back / 1e3);
    std::fflush(stdout);
  }

  // Calls work(its number, rank) on a thread for each rank.
  template <class F>
  void on_all(F work) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks_.size(); ++i)
      threads.emplace_back([&, i] {
        ranks_[i]->ops->bind_thread();
        work(i, *ranks_[i]);
      });
    for (std::thread& thread : threads) thread.join();
  }

  void check(const Way& way, int64_t n) {
    on_all([&](size_t index, Rank& rank) {
      rank.clear(rank.together);
      rank.clear(rank.sums);
      barrier_.arrive_and_wait();
      rank.dispatch(way, n, options_.cols);
      rank.combine(way, n, options_.cols);
      const Bits rows = rank.get(rank.together, n * options_.cols * options_.ranks);
      const Bits sums = rank.get(rank.sums, n * options_.cols);
      if (!are_rows(rows, n * options_.cols)) fail(fmt::format("{} rows at {}", n, index));
      if (!are_sums(sums, index)) fail(fmt::format("sums of {} rows at {}", n, index));
    });
  }
  bool are_rows(const Bits& got, int64_t each) const {
    size_t i = 0;
    for (const auto& rank : ranks_)
      for (size_t k = 0; k < static_cast<size_t>(each); ++k)
        if (got[i++] != sent(rank->row_bits[k])) return false;
    return true;
  }
  bool are_sums(const Bits& got, size_t owner) const {
    for (size_t i = 0; i < got.size(); ++i) {
      float sum = 0;
      for (const auto& rank : ranks_) sum += value(sent(rank->part_bits[owner * got.size() + i]));
      if (got[i] != to_bf16(sum).bits) return false;
    }
    return true;
  }

  template <class F>
  double time(int64_t rows, F call) {
    std::vector<double> us(ranks_.size());
    const int variant = ++variants_;
    on_all([&](size_t index, Rank& rank) {
      const ReplayKey key{.rows = static_cast<int>(rows), .rows_per_seq = 1, .variant = variant};
      const auto work = [&] {
        for (int i = 0; i < kCalls; ++i) call(rank);
      };
      rank.ops->replay(key, work);
      rank.ops->wait(rank.ops->mark());
      barrier_.arrive_and_wait();
      std::vector<double> times;
      for (int i = 0; i < kRounds + 2; ++i) {
        const uint64_t from = rank.ops->stamp();
        rank.ops->replay(key, work);
        const uint64_t to = rank.ops->stamp();
        rank.ops->wait(rank.ops->mark());
        if (i >= 2) times.push_back(rank.ops->seconds_between(from, to) / kCalls * 1e6);
        barrier_.arrive_and_wait();
      }
      std::ranges::nth_element(times, times.begin() + kRounds / 2);
      us[index] = times[kRounds / 2];
    });
    return *std::ranges::max_element(us);
  }

  const Options options_;
  const DeviceGroup::Shared shared_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::barrier<> barrier_;
  int variants_ = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  read_flags(argc, argv, {{"--ranks", &options.ranks}, {"--cols", &options.cols}});
  return options;
}

}  // namespace
}  // namespace skiff::devices::bench

int main(int argc, char** argv) {
  skiff::devices::bench::Bench(skiff::devices::bench::parse(argc, argv)).table();
}
