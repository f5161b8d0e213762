// A block takes some heads of one row. It computes sines and cosines once; then a group of lanes
// takes a head, each lane `kPairs` rotary pairs of it at a time, so that the two halves of a pair
// are in one thread's registers and memory is accessed in vectors.
#include <algorithm>
#include <type_traits>

#include "ops/cuda/align.h"
#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/quantized.cuh"
#include "ops/cuda/attention/store_kernel.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;      // the most of a block
constexpr int kManyThreads = 128;  // where rows are many: more of them are on their way at a time
constexpr int kMaxHead = 256;
static_assert(kMaxHead / 2 <= kManyThreads);
constexpr int kNarrowRows = 512;  // below this a row is shared by several blocks

// Where a lane's pairs of a head begin: the elements of the first, and how far it is to those of
// the next. Elements that are not rotated form pairs of neighbours.
struct Pair {
  int a, b, step;
};
__device__ Pair pair_of(int i, int rope_dim, bool interleaved) {
  return i < rope_dim / 2 && !interleaved ? Pair{i, i + rope_dim / 2, 1}
                                          : Pair{2 * i, 2 * i + 1, 2};
}

// The kPairs pairs of a head that one lane holds, unconverted.
template <class T, int kPairs>
struct Held {
  Pack<T, kPairs> a, b;
};

template <class T, int kPairs>
__device__ Held<T, kPairs> load(const T* head, Pair at) {
  if (at.step == 1) {
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
  if (at.step == 1) {
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

template <int kPairs>
__device__ __forceinline__ void rotate(float (&a)[kPairs], float (&b)[kPairs], const float* cosine,
                                       const float* sine) {
  float c[kPairs], s[kPairs];
  cuda::load<kPairs>(c, cosine);
  cuda::load<kPairs>(s, sine);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float turned = a[i] * c[i] - b[i] * s[i];
    b[i] = b[i] * c[i] + a[i] * s[i];
    a[i] = turned;
  }
}

// A number that no scale or element may pass (ops/kv_quant.h); `low` where x is not a number.
__device__ __forceinline__ float clip(float x, float low, float high) {
  return fminf(fmaxf(x, low), high);
}

template <KvElement kElement>
__device__ __forceinline__ uint16_t scale_for(float scale) {
  constexpr float kMost = kElement == KvElement::kE4M3 ? 0x1p7f : 0x1p64f;
  return __bfloat16_as_ushort(__float2bfloat16_rn(clip(scale, 0x1p-64f, kMost)));
}

constexpr int kStripe = 8;  // elements of a head that a lane quantizes

// Stores the stripe [lane * kStripe, ...) of the head `x`, if it `stores` it. All lanes of a warp
// call this together; each head has `lanes` of them, and those past its end have no stripe.
template <KvElement kElement>
__device__ void quantize(const float* x, int dim, int lane, int lanes, uint8_t* to,
                         uint16_t* scales, bool fixed, bool stores) {
  const int first = lane * kStripe, n = stores ? min(max(dim - first, 0), kStripe) : 0;
  const bool writes_scale = kElement == KvElement::kU4 ? first % kKvGroup == 0 : lane == 0;
  float low = 0, high = 0;
  for (int i = 0; i < n; ++i) {
    low = fminf(low, x[first + i]);
    high = fmaxf(high, x[first + i]);
  }
  const int sharing = kElement == KvElement::kU4 ? min(lanes, kKvGroup / kStripe) : lanes;
  for (int step = sharing / 2; step > 0; step /= 2) {
    low = fminf(low, __shfl_xor_sync(kAllLanes, low, step));
    high = fmaxf(high, __shfl_xor_sync(kAllLanes, high, step));
  }
  if constexpr (kElement == KvElement::kU4) {
    const uint16_t stored = scale_for<kElement>(__fdiv_rn(high - low, 15));
    const float scale = bf16_value(stored);
    const float zero = rintf(clip(__fdiv_rn(-low, scale), 0, 15));
    const auto code = [&](int i) {
      const float q = rintf(clip(__fdiv_rn(x[first + i], scale), -16, 16)) + zero;
      return static_cast<uint32_t>(clip(q, 0, 15));
    };
    for (int i = 0; i < n; i += 2)
      to[(first + i) / 2] = static_cast<uint8_t>(code(i) | code(i + 1) << 4);
    if (n == 0 || !writes_scale) return;
    scales[first / kKvGroup * 2] = stored;
    scales[first / kKvGroup * 2 + 1] = __bfloat16_as_ushort(__float2bfloat16_rn(zero));
  } else {
    constexpr float kMost = kElement == KvElement::kI8 ? 127 : 448;
    if (n == 0) return;
    const uint16_t stored =
        fixed ? *scales : scale_for<kElement>(__fdiv_rn(fmaxf(high, -low), kMost));
    const float scale = bf16_value(stored);
    for (int i = 0; i < n; ++i) {
      const float q = clip(__fdiv_rn(x[first + i], scale), -kMost, kMost);
      to[first + i] = kElement == KvElement::kI8
                          ? static_cast<uint8_t>(static_cast<int8_t>(rintf(q)))
                          : __nv_cvt_float_to_fp8(q, __NV_SATFINITE, __NV_E4M3);
    }
    if (!fixed && writes_scale) *scales = stored;
  }
}

// Puts what a lane holds of a head where all its lanes can read it.
template <class T, int kPairs>
__device__ void spread(const Held<T, kPairs>& x, float* head, Pair at) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    head[at.a + i * at.step] = to_float(x.a.at[i]);
    head[at.b + i * at.step] = to_float(x.b.at[i]);
  }
}

template <class C, class T, int kPairs>
__device__ void store_held(const Cache<C>& cache, const Held<T, kPairs>& x, bool value,
                           int64_t page, int position, int head, Pair at) {
  C* to = value ? cache.v + page * cache.v_page : cache.k + page * cache.k_page;
  write(converted<C>(x), to + cache.in_page(position, head), at);
}
template <KvElement kElement>
__device__ void store_spread(const QuantizedCache<kElement>& cache, const float* x, bool value,
                             int64_t page, int position, int head, int lane, int lanes,
                             bool stores) {
  uint8_t* to = value ? cache.v + page * cache.v_page : cache.k + page * cache.k_page;
  uint16_t* scales = value ? cache.v_scale : cache.k_scale;
  const int64_t stride = value ? cache.v_scale_page : cache.k_scale_page;
  quantize<kElement>(x, cache.head_dim, lane, lanes, to + cache.in_page(position, head),
                     scales + cache.scale_at(page, stride, position, head), cache.scales == 0,
                     stores);
}

// A group of lanes loads kAhead heads at once. kPairs = 4 takes head sizes and rotary dimensions
// that are multiples of 8, one Held per lane. kPairs = 1 takes any even ones, up to four Held per
// lane of a whole warp.
template <class T, class Kv, int kPairs, int kAhead>
__global__ void __launch_bounds__(kThreads)
    store_kernel(const StoreArgs p, const Kv cache, int lane_bits, int heads_per_block) {
  constexpr bool kQuantized = requires { cache.k_scale; };
  constexpr int kHeld = kPairs == 1 ? kMaxHead / 2 / 32 : 1;
  __shared__ __align__(16) float cosine[kMaxHead / 2], sine[kMaxHead / 2];
  __shared__ float q_norm[kMaxHead], k_norm[kMaxHead];
  // The values of the head that each group of lanes quantizes.
  __shared__ float spreads[kQuantized ? kThreads * kStripe : 1];
  const int tid = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x);
  const int lanes = 1 << lane_bits, lane = tid & (lanes - 1), group = tid >> lane_bits;
  const int groups = static_cast<int>(blockDim.x) >> lane_bits;
  const int pairs = p.head_dim / 2, all = p.heads + 2 * p.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * heads_per_block;
  const int end_head = min(first_head + heads_per_block, all);
  T* heads = static_cast<T*>(p.qkv) + row * p.stride;
  const float* sums = p.sums + row * p.sums_stride;
  // The number of the first pair that the lane holds.
  const auto number = [&](int u) { return (u * lanes + lane) * kPairs; };
  const auto pair_at = [&](int u) { return pair_of(number(u), p.rope_dim, p.interleaved); };
  const auto held = [&](int u, int h) { return h < end_head && number(u) < pairs; };
  const auto kv_head_of = [&](int h) {
    return h - p.heads - (h < p.heads + p.kv_heads ? 0 : p.kv_heads);
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
        x[j][u] = p.sums ? load_biased<T, kPairs>(sums + at, p.bias + at, pair_at(u))
                         : load<T, kPairs>(heads + at, pair_at(u));
      }
    }
  };
  const auto begin = [&] {
    wait_for_previous();
    fetch(first_head + group);
  };
  // All that the projection before does not write is there before the wait: weights, and the
  // batch's arrays, which deliver() has written (launch.cuh). But blocks that do not all start
  // early load the row beside them; and sums are a library's, whose kernel has ended by now.
  const bool at_once = kAhead > 1 || p.sums;
  let_next_start();
  const int position = __ldcg(p.rows.positions + row);
  const float speed = tid < p.rope_dim / 2 ? p.speeds[tid] : 0;
#pragma unroll 1
  for (int i = tid; (p.q_norm || p.k_norm) && i < p.head_dim; i += static_cast<int>(blockDim.x)) {
    if (p.q_norm) q_norm[i] = p.q_norm[i];
    if (p.k_norm) k_norm[i] = p.k_norm[i];
  }
  if (at_once) begin();
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) return wait_for_previous();
  const int64_t page = page_of(p.rows, seq, position, cache.page_size);
  if (tid < p.rope_dim / 2) {
    float s, c;
    sincosf(__fmul_rn(static_cast<float>(position), speed), &s, &c);
    sine[tid] = s * p.gain, cosine[tid] = c * p.gain;
  }
  __syncthreads();
  if (!at_once) begin();

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
        const Pair at = pair_at(u);
        if (!value) {
          float a[kPairs], b[kPairs];
#pragma unroll
          for (int i = 0; i < kPairs; ++i) {
            a[i] = to_float(x[j][u].a.at[i]), b[i] = to_float(x[j][u].b.at[i]);
            if (!normed) continue;
            a[i] = a[i] * scale * norm[at.a + i * at.step];
            b[i] = b[i] * scale * norm[at.b + i * at.step];
          }
          // Where a lane has several pairs, all of them are rotated, or none.
          if (number(u) < p.rope_dim / 2) rotate(a, b, cosine + number(u), sine + number(u));
#pragma unroll
          for (int i = 0; i < kPairs; ++i) {
            x[j][u].a.at[i] = from_float<T>(a[i]);
            x[j][u].b.at[i] = from_float<T>(b[i]);
          }
        }
        if (!value || p.sums) write(x[j][u], heads + static_cast<int64_t>(h) * p.head_dim, at);
        // The cache gets the rounded activation, as it stands in the row.
        if constexpr (kQuantized) {
          if (h >= p.heads) spread(x[j][u], spreads + group * lanes * kStripe, at);
        } else if (h >= p.heads) {
          store_held(cache, x[j][u], value, page, position, kv_head_of(h), at);
        }
      }
      if constexpr (kQuantized) {
        __syncwarp();
        // Lanes without such a head take part in the shuffles.
        const bool stores = h >= p.heads && h < end_head;
        if (__any_sync(kAllLanes, stores))
          store_spread(cache, spreads + group * lanes * kStripe, value, page, position,
                       kv_head_of(h), lane, lanes, stores);
        __syncwarp();
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
  int lane_bits = 0;  // 1 << lane_bits lanes share a head.
  while (1 << lane_bits < (wide ? args.head_dim / 8 : 32)) ++lane_bits;
  const bool narrow = args.rows.num_tokens < kNarrowRows;
  const int threads = wide && !narrow ? kManyThreads : kThreads;
  const int per_block = narrow ? std::min(all, threads >> lane_bits) : all;
  const Launch how = {.grid = dim3(static_cast<unsigned>(args.rows.num_tokens),
                                   static_cast<unsigned>((all + per_block - 1) / per_block)),
                      .block = dim3(static_cast<unsigned>(threads)),
                      .stream = stream};
  with_types(args.bf16, args.cache, [&](auto act, const auto& cache) {
    using T = decltype(act);
    using Kv = std::decay_t<decltype(cache)>;
    const auto kernel = !wide    ? store_kernel<T, Kv, 1, 1>
                        : narrow ? store_kernel<T, Kv, 4, 1>
                                 : store_kernel<T, Kv, 4, 4>;
    launch(kernel, how, args, cache, lane_bits, per_block);
  });
}

}  // namespace skiff::cuda
