// A block takes some heads of one row. Sines and cosines are worked out once per block; then a
// group of lanes takes a head, each lane `kPairs` pairs of it at a time, so that a pair's two
// halves meet in one thread's registers and memory is touched in vectors.
#include <algorithm>

#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/store_kernel.h"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxHead = 256;
constexpr int kNarrowRows = 512;  // below this a row is shared by several blocks

// Where the i-th pair of a head lies. Past the rotated ones, pairs are neighbours.
struct Pair {
  int a, b;
};
__device__ Pair pair_of(int i, int rope_dim, bool interleaved) {
  return i < rope_dim / 2 && !interleaved ? Pair{i, i + rope_dim / 2} : Pair{2 * i, 2 * i + 1};
}

// What one lane holds of a head: kPairs pairs from the `first`-th on.
template <int kPairs>
struct Held {
  float a[kPairs], b[kPairs];
  int first;
};

template <int kPairs, class T>
__device__ void load(Held<kPairs>& x, const T* head, int rope_dim, bool interleaved) {
  const Pair at = pair_of(x.first, rope_dim, interleaved);
  if (at.b == at.a + 1) {
    const auto both = *reinterpret_cast<const Pack<T, 2 * kPairs>*>(head + at.a);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x.a[i] = to_float(both.at[2 * i]);
      x.b[i] = to_float(both.at[2 * i + 1]);
    }
  } else {
    const auto a = *reinterpret_cast<const Pack<T, kPairs>*>(head + at.a);
    const auto b = *reinterpret_cast<const Pack<T, kPairs>*>(head + at.b);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      x.a[i] = to_float(a.at[i]);
      x.b[i] = to_float(b.at[i]);
    }
  }
}

template <int kPairs, class T>
__device__ void write(const Held<kPairs>& x, T* head, int rope_dim, bool interleaved) {
  const Pair at = pair_of(x.first, rope_dim, interleaved);
  if (at.b == at.a + 1) {
    Pack<T, 2 * kPairs> both;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      both.at[2 * i] = from_float<T>(x.a[i]);
      both.at[2 * i + 1] = from_float<T>(x.b[i]);
    }
    *reinterpret_cast<Pack<T, 2 * kPairs>*>(head + at.a) = both;
  } else {
    Pack<T, kPairs> a, b;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      a.at[i] = from_float<T>(x.a[i]);
      b.at[i] = from_float<T>(x.b[i]);
    }
    *reinterpret_cast<Pack<T, kPairs>*>(head + at.a) = a;
    *reinterpret_cast<Pack<T, kPairs>*>(head + at.b) = b;
  }
}

// kPairs 4 takes a head of 8n elements with rope over 8n of them: one held piece per lane. kPairs 1
// takes any even head and rope: up to four pieces per lane of a whole warp.
template <class T, class C, int kPairs>
__global__ void __launch_bounds__(kThreads)
    store_kernel(const StoreArgs p, const Cache<C> cache, int lanes, int heads_per_block) {
  constexpr int kHeld = kPairs == 1 ? kMaxHead / 2 / 32 : 1;
  __shared__ float cosine[kMaxHead / 2], sine[kMaxHead / 2];
  wait_for_previous();
  let_next_start();
  const int row = static_cast<int>(blockIdx.x);
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) return;
  const int position = p.rows.positions[row];
  for (int i = static_cast<int>(threadIdx.x); i < p.rope_dim / 2; i += kThreads) {
    sincosf(__fmul_rn(static_cast<float>(position), p.speeds[i]), &sine[i], &cosine[i]);
  }
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, groups = kThreads / lanes;
  const int pairs = p.head_dim / 2, all = p.heads + 2 * p.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * heads_per_block;
  const int64_t page = p.rows.pages[seq * p.rows.pages_stride + position / cache.page_size];
  // All lanes of a warp go round together, for the sum of squares.
  for (int base = first_head; base < min(first_head + heads_per_block, all); base += groups) {
    const int h = base + group;
    const bool mine = h < min(first_head + heads_per_block, all);
    const bool value = h >= p.heads + p.kv_heads;
    const int rope_dim = value ? 0 : p.rope_dim;
    T* head = static_cast<T*>(p.qkv) + row * p.stride + static_cast<int64_t>(h) * p.head_dim;
    Held<kPairs> x[kHeld];
    float squares = 0;
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      x[u].first = (u * lanes + lane) * kPairs;
      if (!mine || x[u].first >= pairs) continue;
      load(x[u], head, rope_dim, p.interleaved);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) squares += x[u].a[i] * x[u].a[i] + x[u].b[i] * x[u].b[i];
    }
    const float* norm = h < p.heads ? p.q_norm : p.k_norm;
    if (p.q_norm || p.k_norm) {
      for (int step = lanes / 2; step > 0; step /= 2) {
        squares += __shfl_xor_sync(0xffffffff, squares, step);
      }
    }
    if (!mine) continue;
    const float eps = h < p.heads ? p.q_eps : p.k_eps;
    const float scale = 1 / sqrtf(squares / static_cast<float>(p.head_dim) + eps);
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
      if (x[u].first >= pairs) continue;
      if (!value) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          const int at = x[u].first + i;
          const Pair pair = pair_of(at, rope_dim, p.interleaved);
          float a = x[u].a[i], b = x[u].b[i];
          if (norm) {
            a = a * scale * norm[pair.a];
            b = b * scale * norm[pair.b];
          }
          if (at < rope_dim / 2) {
            const float c = cosine[at], s = sine[at];
            const float turned = a * c - b * s;
            b = b * c + a * s;
            a = turned;
          }
          // The cache gets what the row holds: rounded to activations first.
          x[u].a[i] = to_float(from_float<T>(a));
          x[u].b[i] = to_float(from_float<T>(b));
        }
        write(x[u], head, rope_dim, p.interleaved);
      }
      if (h >= p.heads) {
        const int kv_head = value ? h - p.heads - p.kv_heads : h - p.heads;
        C* to = value ? cache.v + page * cache.v_page : cache.k + page * cache.k_page;
        write(x[u], to + cache.in_page(position, kv_head), rope_dim, p.interleaved);
      }
    }
  }
}

}  // namespace

void start_store(const StoreArgs& args, cudaStream_t stream) {
  const int all = args.heads + 2 * args.kv_heads;
  const bool wide = args.rope_dim % 8 == 0 && args.head_dim % 8 == 0 && args.stride % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(args.qkv) % 16 == 0;
  int lanes = 1;
  while (lanes < (wide ? args.head_dim / 8 : 32)) lanes *= 2;
  const int per_block = args.rows.num_tokens < kNarrowRows ? std::min(all, kThreads / lanes) : all;
  const Launch how = {.grid = dim3(static_cast<unsigned>(args.rows.num_tokens),
                                   static_cast<unsigned>((all + per_block - 1) / per_block)),
                      .block = dim3(kThreads),
                      .stream = stream};
  with_types(args.bf16, args.cache.bf16, [&](auto act, auto cached) {
    using T = decltype(act);
    using C = decltype(cached);
    launch(wide ? store_kernel<T, C, 4> : store_kernel<T, C, 1>, how, args, Cache<C>(args.cache),
           lanes, per_block);
  });
}

}  // namespace skiff::cuda
