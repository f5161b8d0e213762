#include "apps/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace skiff {
namespace {

// Eight sums side by side keep enough loads under way to fill the memory channels.
uint64_t sum(const uint64_t* data, size_t count) {
  uint64_t lanes[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += data[i + lane];
  return std::accumulate(lanes, lanes + 8, uint64_t{0});
}

}  // namespace

double measured_read_bandwidth(int threads) {
  const size_t workers = threads > 0 ? static_cast<size_t>(threads)
                                     : std::max(1u, std::thread::hardware_concurrency());
  std::vector<uint64_t> data(size_t{64} << 20);  // 512 MiB
  std::iota(data.begin(), data.end(), uint64_t{1});
  const size_t share = data.size() / workers;
  double best = 0;
  uint64_t seen = 0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<uint64_t> sums(workers);
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> pool;
      for (size_t w = 0; w < workers; ++w)
        pool.emplace_back([&, w] { sums[w] = sum(data.data() + w * share, share); });
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seen += std::accumulate(sums.begin(), sums.end(), uint64_t{0});
    best = std::max(best, static_cast<double>(share * workers * sizeof(uint64_t)) / took.count());
  }
  return seen == 0 ? 0 : best;  // `seen` is used, so that no sum can be left out
}

}  // namespace skiff
