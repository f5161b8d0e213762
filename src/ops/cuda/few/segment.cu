#include "ops/cuda/few/segment.h"

#include "ops/cuda/few/ring.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/activation.cuh"
#include "ops/cuda/moe/choose.cuh"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 8, kReaders = kWarps * 32, kThreads = kReaders + 32;
constexpr int kGroup = 4;  // weight rows that a warp meets with one x; gated: two gates, two ups
constexpr int kBatchValues = 128;  // sums of weight rows that are finished together
constexpr int kPartialBytes = 2 * kBatchValues * kWarps * 4, kSumsBytes = kMostSums * 4;
// As much as leaves small kernels a corner to run in.
constexpr int kSegmentShared = 212 * 1024;
// A hand-over takes microseconds: better no answer than a device that never comes back.
constexpr int kMostPolls = 1 << 22;

struct Span {
  int begin, end;
};
__device__ Span share_of(int n, int turn) {
  const int blocks = gridDim.x, block = (blockIdx.x + turn) % blocks;
  const int begin = block * (n / blocks) + min(block, n % blocks);
  return {begin, begin + n / blocks + (block < n % blocks)};
}

// The groups of weight rows that this block has in a product, in the order of the ring.
class Groups {
 public:
  __device__ explicit Groups(const SegmentProduct& p)
      : p_(p),
        share_(share_of(p.flat ? p.slots * p.features : p.features, p.turn)),
        wide_(p.gated ? kGroup / 2 : kGroup) {}
  __device__ bool next() {
    first_ += wide_;
    while (first_ >= stop_) {
      if (++slot_ >= p_.slots) return false;
      const int before = p_.flat ? slot_ * p_.features : 0;
      first_ = max(share_.begin - before, 0);
      stop_ = min(share_.end - before, p_.features);
    }
    return true;
  }
  __device__ int slot() const { return slot_; }
  __device__ int first() const { return first_; }
  __device__ int count() const { return min(wide_, stop_ - first_); }

 private:
  const SegmentProduct& p_;
  Span share_;
  int wide_, slot_ = -1, first_ = 0, stop_ = 0;
};

struct Outputs {  // of a group
  int slot, first, count;
};

struct Shared {
  RingBarriers ring;
  uint64_t routed;
  int item_bytes[kRingItems];
  Outputs outputs[2][kBatchValues / kGroup];
  float squares[2][kWarps];
  int32_t expert[kMostChosen];
  float weight[kMostChosen];
  unsigned arrived[kSegmentHandOvers];
};

__device__ int expert_of(const SegmentProduct& p, int slot, const Shared& shared) {
  return p.routed ? shared.expert[p.first_slot + slot] : p.first_expert + slot;
}

// One thread: all weights of this block, step by step.
__device__ void fill_ring(const Segment& s, char* memory, Shared& shared) {
  RingFiller ring(memory, s.ring_bytes, &shared.ring, shared.item_bytes);
  for (int i = 0; i < s.steps; ++i) {
    const SegmentProduct& p = s.step[i].product;
    if (!p.weight) continue;
    if (p.routed) barrier_wait(shared_address(&shared.routed), 0);
    const int64_t in = int64_t{p.units} * kUnit;
    for (Groups g(p); g.next();) {
      const __nv_bfloat16* rows =
          p.weight + expert_of(p, g.slot(), shared) * p.expert_stride + g.first() * in;
      for (int u = 0; u < p.units; u += p.item_units) {
        const int row_bytes = min(p.item_units, p.units - u) * kUnit * 2;
        const uint32_t to =
            ring.open(kGroup * row_bytes, (p.gated ? 2 : 1) * g.count() * row_bytes);
        for (int r = 0; r < g.count(); ++r) {
          const __nv_bfloat16* from = rows + r * in + u * kUnit;
          ring.copy(to + r * row_bytes, from, row_bytes);
          if (p.gated)
            ring.copy(to + (r + kGroup / 2) * row_bytes, from + p.features * in, row_bytes);
        }
        ring.next();
      }
    }
  }
}

__device__ float low(uint32_t two) { return __uint_as_float(two << 16); }
__device__ float high(uint32_t two) { return __uint_as_float(two & 0xffff0000u); }

// Sums over the lanes; lane l ends up with value l / (32 / N), in sum[0].
template <int N>
__device__ void add_lanes(float (&sum)[N]) {
  const int lane = threadIdx.x % 32;
  int m = 16;
#pragma unroll
  for (int n = N; n > 1; n /= 2, m /= 2) {
    const bool upper = lane & m;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const float give = upper ? sum[i] : sum[i + n / 2];
      const float keep = upper ? sum[i + n / 2] : sum[i];
      sum[i] = keep + __shfl_xor_sync(kAll, give, m);
    }
  }
#pragma unroll
  for (; m > 0; m /= 2) sum[0] += __shfl_xor_sync(kAll, sum[0], m);
}

__device__ void put(void* to, bool f32, int64_t at, float value) {
  if (f32)
    static_cast<float*>(to)[at] = value;
  else
    static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(value);
}

// The threads that multiply, and do all else.
template <int R>
class Reader {
 public:
  __device__ Reader(const Segment& s, char* memory, Shared& shared)
      : s_(s),
        shared_(shared),
        ring_(memory, s.ring_bytes, &shared.ring),
        x_(reinterpret_cast<__nv_bfloat16*>(memory + s.ring_bytes)),
        partial_(reinterpret_cast<float*>(memory + s.ring_bytes + s.x_bytes)),
        sums_(partial_ + kPartialBytes / 4),
        thread_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {}

  __device__ void run() {
    fetch_norms();
    wait_for_previous();
    for (int i = 0; i < s_.steps; ++i) {
      const SegmentStep& step = s_.step[i];
      if (step.wait >= 0) wait(step.wait);
      if (step.input != SegmentInput::kKeep) {
        sync();
        input(step);
        sync();
      }
      if (step.product.weight) product(step.product);
      if (step.combined) combine(step);
      if (step.arrive >= 0) arrive(step.arrive);
    }
    if (s_.last_hand_over >= 0) write_residual();
  }

 private:
  static constexpr int kGroupsAtOnce = kBatchValues / (kGroup * R);

  __device__ void sync() { sync_some(1, kReaders); }

  // Norm weights lie in memory that nobody has read for long, and all blocks want them at once.
  __device__ void fetch_norms() {
    for (int i = 0; i < s_.steps; ++i) {
      const float* norm = s_.step[i].norm;
      const int lines = norm ? s_.step[i].cols / 32 : 0;
      const int line = blockIdx.x + thread_ * gridDim.x;
      if (line < lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + line * 32));
    }
  }

  // Hand-overs. A counter's top bit turns when the last block arrives, and the rest is zero again:
  // nobody has to clear it. What a block has written is seen by those who waited for it.
  __device__ unsigned* counter(int which) { return s_.counters + which * kCounterStride; }
  __device__ void arrive(int which) {
    sync();
    if (thread_ != 0) return;
    const unsigned step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    unsigned before;
    __threadfence();
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter(which)), "r"(step)
                 : "memory");
    shared_.arrived[which] = before;
  }
  __device__ void wait(int which) {
    if (thread_ == 0) {
      const unsigned before = shared_.arrived[which];
      unsigned now;
      int polls = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(now)
                     : "l"(counter(which))
                     : "memory");
        if (++polls == kMostPolls) __trap();
      } while (((before ^ now) & 0x80000000u) == 0);
      __threadfence();
    }
    sync();
  }

  __device__ void input(const SegmentStep& step) {
    if (step.input == SegmentInput::kRows) take_rows(step);
    if (step.input == SegmentInput::kNorm) norm(step);
    if constexpr (R == 1) {
      if (step.input == SegmentInput::kRoute && warp_ == 0) route();
    }
  }

  // What other blocks wrote while this kernel ran is read past the first-level cache.
  __device__ void take_rows(const SegmentStep& step) {
    const int pieces = step.cols / 8;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      auto* to = reinterpret_cast<uint4*>(x_ + step.x + r * step.cols);
      const auto* from = reinterpret_cast<const uint4*>(step.rows + r * step.rows_stride);
#pragma unroll 8
      for (int i = thread_; i < pieces; i += kReaders)
        to[i] = r < s_.rows ? __ldcg(from + i) : uint4{0, 0, 0, 0};
    }
  }

  // Every block for itself; each writes its share of what leaves the kernel.
  __device__ void norm(const SegmentStep& step) {
    constexpr int kWide = 4, kPieces = kMostSegmentCols / (kReaders * kWide);
    const Span mine = share_of(step.cols / kWide, 0);
    for (int r = 0; r < R; ++r) {
      float4 v[kPieces];
      float squares = 0;
      __nv_bfloat16* x = x_ + step.x + r * step.cols;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int c = (thread_ + i * kReaders) * kWide;
        v[i] = {0, 0, 0, 0};
        if (r >= s_.rows || c >= step.cols) continue;
        v[i] = __ldcg(reinterpret_cast<const float4*>(step.residual + r * step.residual_stride + c));
      }
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int c = (thread_ + i * kReaders) * kWide;
        if (r >= s_.rows || c >= step.cols || !step.delta) continue;
        const uint2 d = __ldcg(reinterpret_cast<const uint2*>(step.delta + r * step.cols + c));
        v[i].x += low(d.x), v[i].y += high(d.x), v[i].z += low(d.y), v[i].w += high(d.y);
      }
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        squares += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
      const float scale =
          rsqrtf(sum_of_all(squares, r % 2) / static_cast<float>(step.cols) + step.eps);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int piece = thread_ + i * kReaders, c = piece * kWide;
        if (c >= step.cols) continue;
        const float4 w = *reinterpret_cast<const float4*>(step.norm + c);
        __nv_bfloat162 y[2] = {__floats2bfloat162_rn(v[i].x * scale * w.x, v[i].y * scale * w.y),
                               __floats2bfloat162_rn(v[i].z * scale * w.z, v[i].w * scale * w.w)};
        const uint2 both = *reinterpret_cast<const uint2*>(y);
        *reinterpret_cast<uint2*>(x + c) = both;
        if (piece < mine.begin || piece >= mine.end || r >= s_.rows) continue;
        if (step.residual_out)
          *reinterpret_cast<float4*>(step.residual_out + r * step.residual_out_stride + c) = v[i];
        *reinterpret_cast<uint2*>(step.out + r * step.out_stride + c) = both;
      }
    }
  }
  __device__ float sum_of_all(float v, int which) {
    for (int m = 16; m; m /= 2) v += __shfl_xor_sync(kAll, v, m);
    if (lane_ == 0) shared_.squares[which][warp_] = v;
    sync();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += shared_.squares[which][i];
    return sum;
  }

  // One warp. Every block routes for itself; the first writes the routing.
  __device__ void route() {
    const SegmentRouting& g = s_.routing;
    const Choice c = {.expert = shared_.expert,
                      .weight = shared_.weight,
                      .logits = g.logits,
                      .bias = g.bias,
                      .logits_stride = 0,
                      .tokens = 1,
                      .experts = g.experts,
                      .top_k = g.top_k,
                      .always = g.always,
                      .renorm = g.renorm,
                      .live = nullptr};
    if (g.experts <= 64)
      Chooser<2>(c).choose(0, c.expert, c.weight);
    else if (g.experts <= 128)
      Chooser<4>(c).choose(0, c.expert, c.weight);
    else
      Chooser<kMostExperts / 32>(c).choose(0, c.expert, c.weight);
    __syncwarp();
    if (lane_ == 0) barrier_arrive(shared_address(&shared_.routed));
    if (blockIdx.x > 0) return;
    const int each = g.top_k + g.always, experts = g.experts + g.always;
    const auto below = [&](int e) {
      int n = 0;
      for (int k = 0; k < each; ++k) n += shared_.expert[k] < e;
      return n;
    };
    if (lane_ < each) {
      g.expert[lane_] = shared_.expert[lane_];
      g.weight[lane_] = shared_.weight[lane_];
      g.order[below(shared_.expert[lane_])] = lane_;
    }
    for (int e = lane_; e <= experts; e += 32) g.start[e] = below(e);
  }

  // Warps share a group's units. Which warp begins goes round, so that none has more to do; what is
  // added to what does not: sums of units u, u + 8, ... first, then those of u = 0, 1, ... 7.
  __device__ void product(const SegmentProduct& p) {
    int turn = 0, groups = 0;
    for (Groups g(p); g.next();) {
      const int first_unit = (warp_ - turn) & (kWarps - 1);
      const __nv_bfloat16* x = x_ + p.x + g.slot() * p.x_slot + lane_ * 8;
      float sum[kGroup * R] = {};
      int u = first_unit;
      for (int begin = 0; begin < p.units; begin += p.item_units) {
        const int units = min(p.item_units, p.units - begin), row_bytes = units * kUnit * 2;
        const char* item = ring_.open(kGroup * row_bytes) + lane_ * 16;
        for (; u < begin + units; u += kWarps)
          meet(sum, item + (u - begin) * (kUnit * 2), row_bytes, x + u * kUnit, p.units * kUnit);
        ring_.close();
      }
      turn += p.units;
      add_lanes(sum);
      if (first_unit < p.units && lane_ % (8 / R) == 0)
        partials(first_unit)[groups * kGroup * R + lane_ / (8 / R)] = sum[0];
      if (thread_ == 0) shared_.outputs[batch_][groups] = {g.slot(), g.first(), g.count()};
      if (++groups < kGroupsAtOnce) continue;
      finish(p, groups);
      groups = 0;
    }
    if (groups > 0) finish(p, groups);
  }

  // A unit of four weight rows, by R rows of x: lanes take eight inputs each.
  __device__ void meet(float (&sum)[kGroup * R], const char* weights, int row_bytes,
                       const __nv_bfloat16* x, int x_row) {
    uint4 w[kGroup], rows[R];
#pragma unroll
    for (int f = 0; f < kGroup; ++f)
      w[f] = *reinterpret_cast<const uint4*>(weights + f * row_bytes);
#pragma unroll
    for (int r = 0; r < R; ++r) rows[r] = *reinterpret_cast<const uint4*>(x + r * x_row);
    const auto two = [&](auto part) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint32_t v = part(rows[r]);
#pragma unroll
        for (int f = 0; f < kGroup; ++f) {
          const uint32_t weight = part(w[f]);
          sum[f * R + r] = fmaf(low(weight), low(v), sum[f * R + r]);
          sum[f * R + r] = fmaf(high(weight), high(v), sum[f * R + r]);
        }
      }
    };
    two([](const uint4& v) { return v.x; });
    two([](const uint4& v) { return v.y; });
    two([](const uint4& v) { return v.z; });
    two([](const uint4& v) { return v.w; });
  }

  __device__ float* partials(int part) {
    return partial_ + (batch_ * kWarps + part) * kBatchValues;
  }

  // The parts of some groups' sums become outputs. The next batch has partials of its own: a warp
  // comes back to these only when all have passed another sync().
  __device__ void finish(const SegmentProduct& p, int groups) {
    sync();
    const int wide = p.gated ? kGroup / 2 : kGroup, parts = min(kWarps, p.units);
    const auto sum = [&](int i) {
      float v = 0;
      for (int part = 0; part < parts; ++part) v += partials(part)[i];
      return v;
    };
    for (int i = thread_; i < groups * wide * R; i += kReaders) {
      const int g = i / (wide * R), f = i % (wide * R) / R, r = i % R;
      const Outputs& o = shared_.outputs[batch_][g];
      if (f >= o.count || r >= s_.rows) continue;
      const int at = g * kGroup * R + f * R + r;
      float value = sum(at);
      if (p.bias) value += p.bias[o.first + f];
      if (p.gated) {
        float up = sum(at + wide * R);
        if (p.bias) up += p.bias[p.features + o.first + f];
        value = activate(value, p.act) * up;
      }
      output(p, o.slot, o.first + f, r, value);
    }
    batch_ ^= 1;
  }
  __device__ void output(const SegmentProduct& p, int slot, int feature, int r, float value) {
    if (p.keep_sums) {
      const Span mine = share_of(p.features, p.turn);
      sums_[(p.first_slot + slot) * (mine.end - mine.begin) + feature - mine.begin] = value;
      return;
    }
    if (p.out) put(p.out, p.f32, r * p.out_stride + feature, value);
    if (p.copy) put(p.copy, p.f32, (int64_t{slot} * s_.rows + r) * p.features + feature, value);
  }

  // One row: the experts' outputs by their weights, in the order of the routing.
  __device__ void combine(const SegmentStep& step) {
    sync();
    const Span mine = share_of(step.product.features, step.product.turn);
    const int n = mine.end - mine.begin, each = s_.routing.top_k + s_.routing.always;
    for (int i = thread_; i < n; i += kReaders) {
      float sum = 0;
      for (int k = 0; k < each; ++k) sum = fmaf(shared_.weight[k], sums_[k * n + i], sum);
      const __nv_bfloat16 value = __float2bfloat16_rn(sum);
      if (step.combined) step.combined[mine.begin + i] = value;
      if (step.combined_copy) step.combined_copy[mine.begin + i] = value;
    }
  }

  __device__ void write_residual() {
    arrive(s_.last_hand_over);
    wait(s_.last_hand_over);
    const Span mine = share_of(s_.residual_cols / 4, 0);
    for (int i = thread_; i < (mine.end - mine.begin) * s_.rows; i += kReaders) {
      const int r = i / (mine.end - mine.begin);
      const int c = (mine.begin + i % (mine.end - mine.begin)) * 4;
      *reinterpret_cast<float4*>(s_.residual_to + r * s_.residual_to_stride + c) = __ldcg(
          reinterpret_cast<const float4*>(s_.residual_from + r * s_.residual_from_stride + c));
    }
  }

  const Segment& s_;
  Shared& shared_;
  RingReader ring_;
  __nv_bfloat16* x_;
  float *partial_, *sums_;
  int thread_, lane_, warp_;
  int batch_ = 0;
};

template <int R>
__global__ void __launch_bounds__(kThreads, 1)
    segment_kernel(const __grid_constant__ Segment s) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char memory[];
  __shared__ Shared shared;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRingItems; ++i) {
      barrier_init(shared_address(&shared.ring.full[i]), 1);
      barrier_init(shared_address(&shared.ring.empty[i]), kWarps);
    }
    barrier_init(shared_address(&shared.routed), 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= kReaders) {
    if (threadIdx.x > kReaders) return;
    let_next_start();
    fill_ring(s, memory, shared);
  } else {
    Reader<R>(s, memory, shared).run();
  }
#endif
}

template <class F>
void for_each_kernel(F f) {
  f(segment_kernel<1>, 1), f(segment_kernel<2>, 2), f(segment_kernel<4>, 4);
}

}  // namespace

int segment_ring_bytes(int x_bytes) {
  const int others = x_bytes + kPartialBytes + kSumsBytes + static_cast<int>(sizeof(Shared));
  return (kSegmentShared - others) / 1024 * 1024;
}

void allow_segments() {
  for_each_kernel([](auto kernel, int) { allow_shared(kernel, kSegmentShared); });
}

void start_segment(const Segment& segment, int blocks, cudaStream_t stream) {
  static_assert(sizeof(Segment) < 4096);
  const Launch how = {.grid = dim3(static_cast<unsigned>(blocks)),
                      .block = dim3(kThreads),
                      .shared = kSegmentShared - sizeof(Shared),
                      .stream = stream};
  const int rows = segment.rows <= 2 ? segment.rows : kSegmentRows;
  for_each_kernel([&](auto kernel, int kernel_rows) {
    if (kernel_rows == rows) launch(kernel, how, segment);
  });
}

}  // namespace skiff::cuda
