#include "apps/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace skiff::apps {
namespace {

constexpr size_t kBytes = size_t{1} << 30;  // far beyond any cache
constexpr size_t kHugePage = size_t{2} << 20;
// One thread reads this many places at a time, because one stream does not fill the memory
// channels.
constexpr size_t kStreams = 4;
constexpr size_t kAhead = 256;  // prefetch distance, in words

uint64_t sum(const uint64_t* data, size_t count) {
  uint64_t lanes[8] = {};
  const size_t part = count / kStreams;
  for (size_t i = 0; i + 8 <= part; i += 8)
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* at = data + stream * part + i;
      __builtin_prefetch(at + kAhead);
      for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += at[lane];
    }
  return std::accumulate(lanes, lanes + 8, uint64_t{0});
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

double measured_read_bandwidth(int threads) {
  const size_t workers = threads > 0 ? static_cast<size_t>(threads)
                                     : std::max(1u, std::thread::hardware_concurrency());
  const std::unique_ptr<void, Free> memory(std::aligned_alloc(kHugePage, kBytes));
  if (!memory) return 0;
  madvise(memory.get(), kBytes, MADV_HUGEPAGE);
  std::memset(memory.get(), 1, kBytes);
  const auto* data = static_cast<const uint64_t*>(memory.get());
  const size_t share = kBytes / sizeof(uint64_t) / workers;
  double best = 0;
  uint64_t seen = 0;
  for (int pass = 0; pass < 5; ++pass) {
    std::vector<uint64_t> sums(workers);
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> pool;
      for (size_t w = 0; w < workers; ++w)
        pool.emplace_back([&, w] { sums[w] = sum(data + w * share, share); });
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seen += std::accumulate(sums.begin(), sums.end(), uint64_t{0});
    best = std::max(best, static_cast<double>(share * workers * sizeof(uint64_t)) / took.count());
  }
  return seen == 0 ? 0 : best;  // using `seen` keeps the compiler from removing the sums
}

}  // namespace skiff::apps
