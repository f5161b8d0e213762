// A block takes some heads of one row. It computes sines and cosines once; then a group of lanes
// takes a head, each lane `kPairs` rotary pairs of it at a time, so that the two halves of a pair
// are in one thread's registers and memory is accessed in vectors.
#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/store_kernel.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxHead = 256;
constexpr int kNarrowRows = 512;  // below this a row is shared by several blocks

// The two elements of the i-th pair of a head. Past the rotated ones, pairs are neighbours.
struct Pair {
  int a, b;
};
__device__ Pair pair_of(int i, int rope_dim, bool interleaved) {
  return i < rope_dim / 2 && !interleaved ? Pair{i, i + rope_dim / 2} : Pair{2 * i, 2 * i + 1};
}

// The kPairs pairs of a head that one lane holds, unconverted.
template <class T, int kPairs>
struct Held {
  Pack<T, kPairs> a, b;
};

template <class T, int kPairs>
__device__ Held<T, kPairs> load(const T* head, Pair at) {
  if (at.b != at.a + 1) {
    return {*reinterpret_cast<const Pack<T, kPairs>*>(head + at.a),
            *reinterpret_cast<const Pack<T, kPairs>*>(head + at.b)};
  }
  const auto both = *reinterpret_cast<const Pack<T, 2 * kPairs>*>(head + at.a);
  Held<T, kPairs> x;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    x.a.at[i] = both.at[2 * i];
    x.b.at[i] = both.at[2 * i + 1];
  }
  return x;
}

template <class T, int kPairs>
__device__ void write(const Held<T, kPairs>& x, T* head, Pair at) {
  if (at.b != at.a + 1) {
    *reinterpret_cast<Pack<T, kPairs>*>(head + at.a) = x.a;
    *reinterpret_cast<Pack<T, kPairs>*>(head + at.b) = x.b;
    return;
  }
  Pack<T, 2 * kPairs> both;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    both.at[2 * i] = x.a.at[i];
    both.at[2 * i + 1] = x.b.at[i];
  }
  *reinterpret_cast<Pack<T, 2 * kPairs>*>(head + at.a) = both;
}

template <class C, class T, int kPairs>
__device__ Held<C, kPairs> converted(const Held<T, kPairs>& x) {
  Held<C, kPairs> y;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    y.a.at[i] = from_float<C>(to_float(x.a.at[i]));
    y.b.at[i] = from_float<C>(to_float(x.b.at[i]));
  }
  return y;
}

template <class T, int kPairs>
__device__ Held<T, kPairs> load_biased(const float* sums, const float* bias, Pair at) {
  auto x = load<float, kPairs>(sums, at);
  const auto b = load<float, kPairs>(bias, at);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    x.a.at[i] += b.a.at[i];
    x.b.at[i] += b.b.at[i];
  }
  return converted<T>(x);
}

// A group of lanes loads kAhead heads at once. kPairs = 4 takes head sizes and rotary dimensions
// that are multiples of 8, one Held per lane. kPairs = 1 takes any even ones, up to four Held per
// lane of a whole warp.
template <class T, class C, int kPairs, int kAhead>
__global__ void __launch_bounds__(kThreads)
    store_kernel(const StoreArgs p, const Cache<C> cache, int lanes, int heads_per_block) {
  constexpr int kHeld = kPairs == 1 ? kMaxHead / 2 / 32 : 1;
  __shared__ float cosine[kMaxHead / 2], sine[kMaxHead / 2], q_norm[kMaxHead], k_norm[kMaxHead];
  const int tid = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  const int lane = tid % lanes, group = tid / lanes, groups = kThreads / lanes;
  const int pairs = p.head_dim / 2, all = p.heads + 2 * p.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * heads_per_block;
  const int end_head = min(first_head + heads_per_block, all);
  T* heads = static_cast<T*>(p.qkv) + row * p.stride;
  const float* sums = p.sums + row * p.sums_stride;
  const auto rope_of = [&](int h) { return h < p.heads + p.kv_heads ? p.rope_dim : 0; };
  const auto pair_at = [&](int u, int h) {
    return pair_of((u * lanes + lane) * kPairs, rope_of(h), p.interleaved);
  };
  const auto held = [&](int u, int h) {
    return h < end_head && (u * lanes + lane) * kPairs < pairs;
  };
  Held<T, kPairs> x[kAhead][kHeld];
  const auto fetch = [&](int first) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int h = first + j * groups;
#pragma unroll
      for (int u = 0; u < kHeld; ++u) {
        if (!held(u, h)) continue;
        const int64_t at = static_cast<int64_t>(h) * p.head_dim;
        x[j][u] = p.sums ? load_biased<T, kPairs>(sums + at, p.bias + at, pair_at(u, h))
                         : load<T, kPairs>(heads + at, pair_at(u, h));
      }
    }
  };
  // Loads that do not depend on another kernel come before the wait.
  const float speed = tid < p.rope_dim / 2 ? p.speeds[tid] : 0;
  if (p.q_norm && tid < p.head_dim) q_norm[tid] = p.q_norm[tid];
  if (p.k_norm && tid < p.head_dim) k_norm[tid] = p.k_norm[tid];
  let_next_start();
  wait_for_previous();
  const int position = p.rows.positions[row];
  fetch(first_head + group);
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) return;
  const int64_t page = p.rows.pages[seq * p.rows.pages_stride + position / cache.page_size];
  if (tid < p.rope_dim / 2) {
    sincosf(__fmul_rn(static_cast<float>(position), speed), &sine[tid], &cosine[tid]);
  }
  __syncthreads();

  // All lanes of a warp run the same iterations, because the sum of squares needs shuffles.
  for (int base = first_head; base < end_head; base += kAhead * groups) {
    if (base > first_head) fetch(base + group);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int h = base + group + j * groups;
      const bool value = h >= p.heads + p.kv_heads;
      float scale = 1;
      const bool normed = !value && (h < p.heads ? p.q_norm : p.k_norm) != nullptr;
      const float* norm = h < p.heads ? q_norm : k_norm;
      if (p.q_norm || p.k_norm) {
        float squares = 0;
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
          if (!held(u, h)) continue;
#pragma unroll
          for (int i = 0; i < kPairs; ++i) {
            const float a = to_float(x[j][u].a.at[i]), b = to_float(x[j][u].b.at[i]);
            squares += a * a + b * b;
          }
        }
        for (int step = lanes / 2; step > 0; step /= 2) {
          squares += __shfl_xor_sync(kAllLanes, squares, step);
        }
        const float eps = h < p.heads ? p.q_eps : p.k_eps;
        scale = 1 / sqrtf(squares / static_cast<float>(p.head_dim) + eps);
      }
#pragma unroll
      for (int u = 0; u < kHeld; ++u) {
        if (!held(u, h)) continue;
        const Pair at = pair_at(u, h);
        if (!value) {
#pragma unroll
          for (int i = 0; i < kPairs; ++i) {
            const int number = (u * lanes + lane) * kPairs + i;
            float a = to_float(x[j][u].a.at[i]), b = to_float(x[j][u].b.at[i]);
            if (normed) {
              const Pair here = pair_of(number, p.rope_dim, p.interleaved);
              a = a * scale * norm[here.a];
              b = b * scale * norm[here.b];
            }
            if (number < p.rope_dim / 2) {
              const float c = cosine[number], s = sine[number];
              const float turned = a * c - b * s;
              b = b * c + a * s;
              a = turned;
            }
            x[j][u].a.at[i] = from_float<T>(a);
            x[j][u].b.at[i] = from_float<T>(b);
          }
        }
        if (!value || p.sums) write(x[j][u], heads + static_cast<int64_t>(h) * p.head_dim, at);
        if (h >= p.heads) {
          // The cache gets the rounded activation, as it stands in the row.
          const int kv_head = value ? h - p.heads - p.kv_heads : h - p.heads;
          C* to = value ? cache.v + page * cache.v_page : cache.k + page * cache.k_page;
          write(converted<C>(x[j][u]), to + cache.in_page(position, kv_head), at);
        }
      }
    }
  }
}

}  // namespace

void start_store(const StoreArgs& args, cudaStream_t stream) {
  const int all = args.heads + 2 * args.kv_heads;
  const bool wide = args.rope_dim % 8 == 0 && args.head_dim % 8 == 0 && args.stride % 8 == 0 &&
                    is_aligned(args.qkv) && is_aligned(args.sums, args.sums_stride * 4) &&
                    is_aligned(args.bias);
  int lanes = 1;
  while (lanes < (wide ? args.head_dim / 8 : 32)) lanes *= 2;
  const bool narrow = args.rows.num_tokens < kNarrowRows;
  const int per_block = narrow ? std::min(all, kThreads / lanes) : all;
  const Launch how = {.grid = dim3(static_cast<unsigned>(args.rows.num_tokens),
                                   static_cast<unsigned>((all + per_block - 1) / per_block)),
                      .block = dim3(kThreads),
                      .stream = stream};
  with_types(args.bf16, args.cache.bf16, [&](auto act, auto cached) {
    using T = decltype(act);
    using C = decltype(cached);
    const auto kernel = !wide    ? store_kernel<T, C, 1, 1>
                        : narrow ? store_kernel<T, C, 4, 1>
                                 : store_kernel<T, C, 4, 3>;
    launch(kernel, how, args, Cache<C>(args.cache), lanes, per_block);
  });
}

}  // namespace skiff::cuda
