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

// Memory that is read in some places at a time, and what is asked for ahead of its use. One stream
// does not fill the memory channels of every machine; on a virtual one, several may cost more walks
// through page tables than they gain. So both are tried.
constexpr size_t kAhead = 512;
template <size_t kStreams>
struct Streams {
  const char* data;
  size_t bytes;  // the size of each stream
};

template <size_t kStreams>
void read_words(const Streams<kStreams>& s) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i + 64 <= s.bytes; i += 64)
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const char* p = s.data + stream * s.bytes + i;
      __builtin_prefetch(p + kAhead);
      uint64_t line[8];
      std::memcpy(line, p, sizeof line);
      for (size_t j = 0; j < 8; ++j) sum[j] ^= line[j];
    }
  use(sum);
}

// Reads the streams in AVX-512 vectors: fewer instructions than the loop above needs, so that a
// processor which also serves other threads does not run out of them.
template <size_t kStreams>
__attribute__((target("avx512f"))) void read_vectors(const Streams<kStreams>& s) {
  __m512i sum[kStreams];
  for (auto& x : sum) x = _mm512_setzero_si512();
  for (size_t i = 0; i + 64 <= s.bytes; i += 64)
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const char* p = s.data + stream * s.bytes + i;
      _mm_prefetch(p + kAhead, _MM_HINT_T0);
      sum[stream] = _mm512_xor_si512(sum[stream], _mm512_loadu_si512(p));
    }
  use(sum);
}

template <size_t kStreams>
double read_seconds(const char* memory, size_t bytes, int threads) {
  const size_t share = bytes / static_cast<size_t>(threads);
  const auto read =
      cpu::best_isa() >= cpu::Isa::kAvx512 ? read_vectors<kStreams> : read_words<kStreams>;
  return best_seconds(threads, [&](int t) {
    read({memory + static_cast<size_t>(t) * share, share / kStreams});
  });
}

double read_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1} << 30, kHugePage = size_t{2} << 20;
  void* memory = std::aligned_alloc(kHugePage, kBytes);
  madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);
  const auto* data = static_cast<const char*>(memory);
  const double seconds =
      std::min(read_seconds<1>(data, kBytes, threads), read_seconds<4>(data, kBytes, threads));
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

__attribute__((target("avx512f,avx512bf16"))) void dot_avx512bf16(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_set1_ps(1);
  __m512i pairs = _mm512_set1_epi32(0x3f803f80);
  asm volatile("" : "+v"(pairs));
  const auto x = reinterpret_cast<__m512bh>(pairs);
  for (int64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = _mm512_dpbf16_ps(s, x, x);
  use(sum);
}

__attribute__((target("avx512f,avx512vnni"))) void dot_avx512vnni(int64_t rounds) {
  constexpr int kChains = 16;
  __m512i sum[kChains];
  for (auto& s : sum) s = _mm512_setzero_si512();
  __m512i x = _mm512_set1_epi8(1);
  asm volatile("" : "+v"(x));
  for (int64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = _mm512_dpbusd_epi32(s, x, x);
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

double best_time(int threads, const std::function<void()>& run) {
  double seconds = INFINITY;
  const double begin = now(threads);
  for (int i = 0; i < 5 || now(threads) - begin < 0.5; ++i) {
    const double start = now(threads);
    run();
    seconds = std::min(seconds, now(threads) - start);
  }
  return seconds;
}

Limits measure_limits(int threads) {
  Limits out;
  out.read_bytes = read_bandwidth(threads);
  const cpu::Isa isa = cpu::best_isa();
  if (isa >= cpu::Isa::kAvx512)
    out.f32_flops = rate(threads, 16 * 16 * 2, fma_avx512);
  else if (isa == cpu::Isa::kAvx2)
    out.f32_flops = rate(threads, 12 * 8 * 2, fma_avx2);
  out.bf16_flops = out.int8_ops = out.f32_flops;
  if (isa >= cpu::Isa::kAvx512Vnni) out.int8_ops = rate(threads, 16 * 16 * 4 * 2, dot_avx512vnni);
  if (isa == cpu::Isa::kAvx512Bf16) out.bf16_flops = rate(threads, 16 * 16 * 2 * 2, dot_avx512bf16);
  if (isa == cpu::Isa::kAmx) out.bf16_flops = rate(threads, 4 * 16 * 16 * 32 * 2, dot_amx);
  return out;
}

}  // namespace skiff::bench
