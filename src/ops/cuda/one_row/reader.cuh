// ops/cuda/one_row/reader.cuh -- the consumer warps of a segment: norms, GEMVs and their epilogues.
#pragma once
#include "ops/cuda/activation.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/one_row/block.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::segment {

// Sums each of N values over the lanes; lane l gets the sum of value l / (32 / N), in sum[0].
template <int N, int kMask = 16>
__device__ inline void add_lanes(float (&sum)[N]) {
  const bool upper = threadIdx.x % 32 & kMask;
  if constexpr (N > 1) {
    float half[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float give = upper ? sum[i] : sum[i + N / 2];
      const float keep = upper ? sum[i + N / 2] : sum[i];
      half[i] = keep + __shfl_xor_sync(kAllLanes, give, kMask);
    }
    add_lanes<N / 2, kMask / 2>(half);
    sum[0] = half[0];
  } else {
#pragma unroll
    for (int m = kMask; m > 0; m /= 2) sum[0] += __shfl_xor_sync(kAllLanes, sum[0], m);
  }
}

class Reader {
 public:
  __device__ Reader(char* memory, Shared& shared)
      : s_(shared.segment()),
        shared_(shared),
        ring_(memory, s_.ring_bytes, &shared.ring),
        x_(reinterpret_cast<__nv_bfloat16*>(memory + s_.ring_bytes)),
        partial_(reinterpret_cast<float*>(memory + s_.ring_bytes + s_.x_bytes)),
        thread_(threadIdx.x),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32) {}

  __device__ void run() {
    fetch_norms();
    wait_for_previous();
    read_counters();
    for (int i = 0; i < s_.steps; ++i) {
      const SegmentStep& step = s_.step[i];
      take_input(step);
      if (step.product.weight) product(step.product);
      if (step.arrive >= 0) arrive(step.arrive);
    }
    if (s_.last_hand_over >= 0) write_residual();
  }

 private:
  static constexpr int kGroupsAtOnce = kBatchValues / kGroup;

  __device__ void sync() { named_sync(1, kReaders); }

  // Prefetches norm weights into the L2: they are cold, and all blocks need them at the same time.
  __device__ void fetch_norms() {
    for (int i = 0; i < s_.steps; ++i) {
      const float* norm = s_.step[i].norm;
      const int lines = norm ? s_.step[i].cols / 32 : 0;
      const int line = blockIdx.x + thread_ * gridDim.x;
      if (line < lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + line * 32));
    }
  }

  // Reads the counters before this block arrives, so before their top bits can flip.
  __device__ void read_counters() {
    if (thread_ < kSegmentHandOvers) shared_.before[thread_] = __ldcg(counter(s_, thread_));
    sync();
  }
  __device__ void arrive(int which) {
    sync();
    if (thread_ != 0) return;
    const unsigned step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter(s_, which)), "r"(step)
                 : "memory");
  }
  __device__ void wait(int which) {
    if (thread_ == 0) poll(s_, shared_, which);
    sync();
  }

  __device__ void take_input(const SegmentStep& step) {
    if (step.input == SegmentInput::kNorm) return norm(step);
    if (step.wait >= 0) wait(step.wait);
    if (step.input == SegmentInput::kKeep) return;
    sync();
    take_row(step);
    sync();
  }

  // Loads through the L2, because other blocks wrote the row while this kernel ran.
  __device__ void take_row(const SegmentStep& step) {
    constexpr int kAtOnce = 4;
    const int pieces = step.cols / 8;
    auto* to = reinterpret_cast<uint4*>(x_);
    const auto* from = reinterpret_cast<const uint4*>(step.row);
    for (int first = thread_; first < pieces; first += kAtOnce * kReaders) {
      uint4 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kReaders;
        if (piece < pieces) v[i] = __ldcg(from + piece);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kReaders;
        if (piece < pieces) to[piece] = v[i];
      }
    }
  }

  // Every block computes the whole norm; each writes its part of the outputs that leave the kernel.
  __device__ void norm(const SegmentStep& step) {
    constexpr int kWide = 4, kPieces = kMaxNormCols / (kReaders * kWide);
    const Span mine = share_of(step.shares, 0);
    float4 v[kPieces], w[kPieces];
    const auto for_each_piece = [&](auto f) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int piece = thread_ + i * kReaders;
        if (piece * kWide < step.cols) f(i, piece, piece * kWide);
      }
    };
    const auto take_residual = [&] {
      for_each_piece([&](int i, int, int c) {
        v[i] = __ldcg(reinterpret_cast<const float4*>(step.residual + c));
      });
    };
    for_each_piece(
        [&](int i, int, int c) { w[i] = *reinterpret_cast<const float4*>(step.norm + c); });
    if (step.residual_early) take_residual();
    if (step.wait >= 0) wait(step.wait);
    if (!step.residual_early) take_residual();
    if (step.delta) {
      uint2 d[kPieces];
      for_each_piece([&](int i, int, int c) {
        d[i] = __ldcg(reinterpret_cast<const uint2*>(step.delta + c));
      });
      for_each_piece([&](int i, int, int) {
        v[i].x += low_bf16(d[i].x), v[i].y += high_bf16(d[i].x);
        v[i].z += low_bf16(d[i].y), v[i].w += high_bf16(d[i].y);
      });
    }
    float squares = 0;
    for_each_piece([&](int i, int, int) {
      squares += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    });
    squares = warp_sum(squares);
    if (lane_ == 0) shared_.squares[warp_] = squares;
    sync();
    squares = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) squares += shared_.squares[i];
    const float scale = rsqrtf(squares / static_cast<float>(step.cols) + step.eps);
    for_each_piece([&](int i, int piece, int c) {
      const float4& a = v[i];
      const __nv_bfloat162 y[2] = {
          __floats2bfloat162_rn(a.x * scale * w[i].x, a.y * scale * w[i].y),
          __floats2bfloat162_rn(a.z * scale * w[i].z, a.w * scale * w[i].w)};
      const uint2 both = *reinterpret_cast<const uint2*>(y);
      *reinterpret_cast<uint2*>(x_ + c) = both;
      if (piece < mine.begin || piece >= mine.end) return;
      if (step.residual_out) *reinterpret_cast<float4*>(step.residual_out + c) = a;
      *reinterpret_cast<uint2*>(step.out + c) = both;
    });
    sync();
  }

  // The units of a group are dealt to the warps. The first warp rotates from group to group, so
  // that the load is even; the order of additions is fixed all the same: first units u, u + 8, ...
  // of each warp, then the sums for u = 0, 1, ... 7.
  __device__ void product(const SegmentProduct& p) {
    const int all_units = p.units, item_units = p.item_units;
    const __nv_bfloat16* x = x_ + lane_ * 8;
    int turn = 0, groups = 0;
    for (Groups g(p); g.next();) {
      const int first_unit = (warp_ - turn) & (kWarps - 1);
      float part[kGroup / 2][4] = {};
      int u = first_unit;
      for (int begin = 0; begin < all_units; begin += item_units) {
        const int units = min(item_units, all_units - begin), row_bytes = units * kUnit * 2;
        const char* item = ring_.open(kGroup * row_bytes) + lane_ * 16;
        for (; u < begin + units; u += kWarps)
          meet(part, item + (u - begin) * (kUnit * 2), row_bytes, x + u * kUnit);
        ring_.close();
      }
      turn += all_units;
      if (first_unit < all_units) {
        float sum[kGroup];
        take_diagonals(sum, part);
        add_lanes(sum);
        if (lane_ % 8 == 0) partials(first_unit)[groups * kGroup + lane_ / 8] = sum[0];
      }
      if (thread_ == 0) shared_.outputs[batch_][groups] = {g.first(), g.count()};
      if (++groups < kGroupsAtOnce) continue;
      finish(p, groups);
      groups = 0;
    }
    if (groups > 0) finish(p, groups);
  }

  // Multiplies a unit of four weight rows by x. Lane l loads inputs 8l to 8l + 7 of each, so lanes
  // 4g to 4g + 3 hold the same 32 inputs as row g of the mma's A and as column g of its B: their
  // part of the dot product is element (g, g) of the result, whose other elements are not used. Two
  // weight rows fill the 16 rows of A.
  __device__ void meet(float (&part)[kGroup / 2][4], const char* weights, int row_bytes,
                       const __nv_bfloat16* x) {
    uint4 w[kGroup];
#pragma unroll
    for (int f = 0; f < kGroup; ++f)
      w[f] = *reinterpret_cast<const uint4*>(weights + f * row_bytes);
    const uint4 in = *reinterpret_cast<const uint4*>(x);
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) {
      const uint4 &a = w[2 * i], &b = w[2 * i + 1];
      mma_bf16(part[i], {a.x, b.x, a.y, b.y}, in.x, in.y);
      mma_bf16(part[i], {a.z, b.z, a.w, b.w}, in.z, in.w);
    }
  }
  __device__ void take_diagonals(float (&sum)[kGroup], const float (&part)[kGroup / 2][4]) {
    const int row = lane_ / 4;
    const bool mine = lane_ % 4 == row / 2, odd = row % 2;
#pragma unroll
    for (int i = 0; i < kGroup / 2; ++i) {
      const float(&d)[4] = part[i];
      sum[2 * i] = !mine ? 0 : odd ? d[1] : d[0];
      sum[2 * i + 1] = !mine ? 0 : odd ? d[3] : d[2];
    }
  }

  __device__ float* partials(int part) {
    return partial_ + (batch_ * kWarps + part) * kBatchValues;
  }

  // Reduces the partial sums of a batch of groups to outputs. The next batch has partial sums of
  // its own: a warp reuses these only after all warps have passed another sync().
  __device__ void finish(const SegmentProduct& p, int groups) {
    sync();
    const int parts = min(kWarps, p.units), wide = kGroup >> p.gated;  // outputs of a group
    const int shift = __popc(wide - 1);
    const auto sum = [&](int i) {
      float v = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part)
        if (part < parts) v += partials(part)[i];
      return v;
    };
    for (int i = thread_; i < groups << shift; i += kReaders) {
      const int g = i >> shift, f = i & (wide - 1);
      const Outputs& o = shared_.outputs[batch_][g];
      if (f >= o.count) continue;
      const int at = g * kGroup + f, feature = o.first + f;
      float value = sum(at);
      if (p.bias) value += p.bias[feature];
      if (p.gated) {
        float up = sum(at + kGroup / 2);
        if (p.bias) up += p.bias[p.features + feature];
        value = activate(value, p.act) * up;
      }
      put(p.out, p.f32, feature, value);
      if (p.copy) put(p.copy, p.f32, feature, value);
    }
    batch_ ^= 1;
  }

  __device__ void write_residual() {
    arrive(s_.last_hand_over);
    wait(s_.last_hand_over);
    const Span mine = share_of(s_.residual_shares, 0);
    for (int i = mine.begin + thread_; i < mine.end; i += kReaders)
      reinterpret_cast<float4*>(s_.residual_to)[i] =
          __ldcg(reinterpret_cast<const float4*>(s_.residual_from) + i);
  }

  const Segment& s_;
  Shared& shared_;
  RingReader ring_;
  __nv_bfloat16* x_;
  float* partial_;
  int thread_, lane_, warp_;
  int batch_ = 0;
};

}  // namespace skiff::cuda::segment
