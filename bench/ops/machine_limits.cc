#include "machine_limits.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "ops/cpu/cpu_features.h"

namespace skiff::bench {
namespace {

// Returns the seconds that `work(thread)` takes on all threads together, the best of several runs.
double best_seconds(int threads, const std::function<void(int)>& work) {
  double best = HUGE_VAL;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double begin = now(threads);
    {
      std::vector<std::jthread> others;
      for (int t = 1; t < threads; ++t) others.emplace_back([&, t] { work(t); });
      work(0);
    }
    best = std::min(best, now(threads) - begin);
  }
  return best;
}

// Keeps a result alive without storing it.
template <class T>
void use(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// Reads four places at a time and prefetches, because one stream does not fill the memory channels.
double read_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1} << 30, kHugePage = size_t{2} << 20;
  constexpr size_t kStreams = 4, kAhead = 256;
  void* memory = std::aligned_alloc(kHugePage, kBytes);
  madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);
  const auto* data = static_cast<const uint64_t*>(memory);
  const size_t share = kBytes / 8 / static_cast<size_t>(threads), part = share / kStreams;
  const double seconds = best_seconds(threads, [&](int t) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= part; i += 8)
      for (size_t stream = 0; stream < kStreams; ++stream) {
        const uint64_t* p = data + static_cast<size_t>(t) * share + stream * part + i;
        __builtin_prefetch(p + kAhead);
        for (size_t j = 0; j < 8; ++j) sum[j] ^= p[j];
      }
    use(sum);
  });
  std::free(memory);
  return static_cast<double>(kBytes) / seconds;
}

__attribute__((target("avx512f"))) void fma_avx512(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_set1_ps(1);
  __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  asm volatile("" : "+v"(x), "+v"(y));
  for (int64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = _mm512_fmadd_ps(s, x, y);
  use(sum);
}

__attribute__((target("avx2,fma"))) void fma_avx2(int64_t rounds) {
  constexpr int kChains = 12;
  __m256 sum[kChains];
  for (auto& s : sum) s = _mm256_set1_ps(1);
  __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  asm volatile("" : "+x"(x), "+x"(y));
  for (int64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = _mm256_fmadd_ps(s, x, y);
  use(sum);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) void dot_amx(int64_t rounds) {
  const TileConfig config;
  use(config);  // the intrinsic of GCC 12 claims to read eight bytes of the 64
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

double rate(int threads, double flops_per_round, void (*work)(int64_t)) {
  constexpr int64_t kRounds = 500'000;
  const double seconds = best_seconds(threads, [&](int) { work(kRounds); });
  return flops_per_round * static_cast<double>(kRounds) * threads / seconds;
}

}  // namespace

double now(int threads) {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Limits measure_limits(int threads) {
  Limits out;
  out.read_bytes = read_bandwidth(threads);
  const cpu::Isa isa = cpu::best_isa();
  if (isa >= cpu::Isa::kAvx512)
    out.f32_flops = rate(threads, 16 * 16 * 2, fma_avx512);
  else if (isa == cpu::Isa::kAvx2)
    out.f32_flops = rate(threads, 12 * 8 * 2, fma_avx2);
  out.bf16_flops = out.f32_flops;
  if (isa == cpu::Isa::kAmx) out.bf16_flops = rate(threads, 4 * 16 * 16 * 32 * 2, dot_amx);
  return out;
}

}  // namespace skiff::bench
