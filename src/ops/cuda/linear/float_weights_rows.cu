#include "ops/cuda/linear/float_weights_rows.h"

#include <cuda_bf16.h>

#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/hopper/lane_copy.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/float_parts.cuh"

namespace skiff::cuda {
namespace {

constexpr int kCluster = 8;  // blocks that share the inner dimension of a tile
constexpr int kGroups = 2;   // warpgroups of a block, which share the block's part of it
constexpr int kThreads = 128 * kGroups;
constexpr int kOutputs = 64;                  // outputs of a tile: the rows of a wgmma
constexpr int kOwned = kOutputs / kCluster;   // outputs of which a block adds up the sums
constexpr int kPart = 128;                    // inner elements that a block takes at a time
constexpr int kPiece = kPart / kGroups;       // a warpgroup takes so many of them
constexpr int kSteps = kPiece / 16;           // wgmmas of a piece
constexpr int kSources = kCluster * kGroups;  // sums of each output
constexpr int kStepBytes = 16 * 16 * 4;       // a warp's weights for one wgmma take so many
constexpr int kSlotBytes = kOutputs * kPart * 4;
constexpr int kClusters = 15;           // an H200 runs so many at the same time
constexpr int kMostShared = 227 << 10;  // bytes

struct Product {
  float* out;
  const __nv_bfloat16* x;
  const float *w, *bias;
  int64_t out_stride, x_stride;
  int rows, in, out_features;
  int parts;    // each block has so many, of kPart inner elements
  bool beside;  // waits for the kernels before this one at its end
};

// The shared memory of a block with tiles of so many rows: its elements of x, in pieces; a ring of
// parts of weights; and in the end, in place of both, sums.
template <int kRows>
struct Shape {
  static constexpr int kPieceBytes = kRows * kPiece * 2;
  static constexpr int kAhead = kRows <= 48 ? 4 : kRows <= 64 ? 3 : 2;  // slots of the ring
  // Sums of an output: such that lanes with neighbouring outputs and rows read from 32 banks.
  static constexpr int kSumStride = kRows + 4;

  __host__ __device__ static int ring_at(int parts) { return parts * kGroups * kPieceBytes; }
  __host__ __device__ static int bytes(int parts) {
    const int sums = kSources * kOwned * kSumStride * 4;
    const int operands = ring_at(parts) + kAhead * kSlotBytes;
    return operands > sums ? operands : sums;
  }
};

__device__ void copy_or_clear(void* to, const void* from, bool is) {
  if (is)
    copy_piece(shared_address(to), from);
  else
    *static_cast<uint4*>(to) = uint4{};
}

// A warp's weights, piece by piece: 16 rows, of which lane 4 * g + t copies rows g and g + 8,
// elements [4 * t, 4 * t + 4) of each step.
class WeightLine {
 public:
  // The weights of rows from row0 on, of so many pieces from element `begin` on.
  __device__ WeightLine(const Product& p, int row0, int begin, int pieces)
      : left_(p.in - begin - 4 * t_),
        end_(left_ - pieces * kPiece),
        upper_(row0 + g_ < p.out_features),
        lower_(row0 + g_ + 8 < p.out_features),
        from_(p.w + int64_t{row0 + g_} * p.in + begin + 4 * t_),
        down_(int64_t{8} * p.in) {}

  // Begins to copy the next piece; there may be none.
  __device__ void copy(uint8_t* to) {
    if (left_ > end_) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const bool is = left_ > 16 * s;
        uint8_t* at = to + s * kStepBytes + chunk(t_);
        copy_or_clear(at, from_ + 16 * s, is && upper_);
        copy_or_clear(at + kStepBytes / 2, from_ + 16 * s + down_, is && lower_);
      }
    }
    left_ -= kPiece;
    from_ += kPiece;
    end_group_of_copies();
  }

  // The lane's two pairs of a step, in row g or, with `lower`, g + 8.
  __device__ float4 pairs(const uint8_t* from, int step, int lower) const {
    const uint8_t* at = from + step * kStepBytes + lower * (kStepBytes / 2) + t_ % 2 * 8;
    const auto first = *reinterpret_cast<const float2*>(at + chunk(t_ / 2));
    const auto second = *reinterpret_cast<const float2*>(at + chunk(t_ / 2 + 2));
    return {first.x, first.y, second.x, second.y};
  }

 private:
  // Where a row's chunk of 4 elements lies: such that 16 lanes read pairs from 32 banks.
  __device__ int chunk(int i) const { return g_ * 64 + (i ^ (g_ / 2 % 2 * 2)) * 16; }

  const int g_ = static_cast<int>(threadIdx.x) % 32 / 4, t_ = static_cast<int>(threadIdx.x) % 4;
  int left_, end_;  // elements of the row from the present one on, and behind the last piece
  bool upper_, lower_;
  const float* from_;
  int64_t down_;
};

// Copies a block's elements of x, rows from row0 on, as wgmma reads them.
template <int kRows>
__device__ void copy_rows(uint8_t* to, const Product& p, int row0, int begin) {
  constexpr int kChunks = kPiece / 8;  // chunks of 16 bytes in a row of a piece
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < p.parts * kGroups * kRows * kChunks;
       i += kThreads) {
    const int row = i / kChunks % kRows, chunk = i % kChunks;
    const int k = begin + i / kChunks / kRows * kPiece + chunk * 8;
    copy_or_clear(to + i / kChunks * kPiece * 2 + (chunk ^ row % 8) * 16,
                  p.x + (row0 + row) * p.x_stride + k, row0 + row < p.rows && k < p.in);
  }
  end_group_of_copies();
}

// Half of a piece's weights as operands of wgmmas.
constexpr int kHalf = kSteps / 2;
struct Operands {
  uint32_t at[kHalf][kFloatParts][4];

  __device__ __forceinline__ void split(const float4 (&w)[kHalf][2]) {
#pragma unroll
    for (int s = 0; s < kHalf; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const FloatParts first = split_floats(w[s][h].x, w[s][h].y);
        const FloatParts second = split_floats(w[s][h].z, w[s][h].w);
#pragma unroll
        for (int i = 0; i < kFloatParts; ++i) {
          at[s][i][h] = first.pair[i];
          at[s][i][2 + h] = second.pair[i];
        }
      }
    }
  }
};

// The sums of a warpgroup. What the smaller parts of the weights add is summed apart: each addition
// rounds to the size of its sum, and fewer are made to the large one.
template <int kRows>
struct Sums {
  float large[kRows / 2] = {}, small[kRows / 2] = {};
};

// Adds weights * rows over the pieces of a warpgroup, whose rows of x begin at `x`. The copies of
// the first pieces, and of x, have arrived.
template <int kRows>
__device__ __forceinline__ void multiply(Sums<kRows>& sums, WeightLine& line, uint8_t* ring,
                                         uint64_t x, int pieces) {
  using S = Shape<kRows>;
  Operands operands[2] = {};
  int slot = 0;
#pragma unroll 1
  for (int piece = 0; piece < pieces; ++piece) {
    wait_for_copies<S::kAhead - 1>();
    __syncwarp();
    uint8_t* from = ring + slot * kSlotBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float4 w[kHalf][2];
#pragma unroll
      for (int s = 0; s < kHalf; ++s) {
#pragma unroll
        for (int h = 0; h < 2; ++h) w[s][h] = line.pairs(from, half * kHalf + s, h);
      }
      wgmma_wait<1>();  // the operands that are written next are free
#pragma unroll
      for (auto& step : operands[half].at) settle(step);
      operands[half].split(w);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kHalf; ++s) {
        const auto& at = operands[half].at[s];
        const uint64_t elements = x + (half * kHalf + s) * kWgmmaStep;
        wgmma_held<kRows>(sums.small, at[2], elements, 1);
        wgmma_held<kRows>(sums.small, at[1], elements, 1);
        wgmma_held<kRows>(sums.large, at[0], elements, 1);
      }
      wgmma_commit();
    }
    x += S::kPieceBytes >> 4;
    __syncwarp();  // all lanes have read the slot
    line.copy(from);
    slot = slot + 1 == S::kAhead ? 0 : slot + 1;
  }
  wgmma_wait<0>();
  settle(sums.small);
  settle(sums.large);
}

// Warpgroups divide the inner dimension of a tile of kOutputs outputs and kRows rows. Each block of
// the cluster adds up the sums of some outputs: all write theirs into its shared memory.
template <int kRows>
__global__ void __launch_bounds__(kThreads, 1) float_weights_rows_kernel(Product p) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // DenseProducts launches it nowhere else
  using S = Shape<kRows>;
  extern __shared__ __align__(1024) uint8_t memory[];
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / 128;
  const int warp = thread % 128 / 32;  // its number in the warpgroup
  const int rank = block_rank(), row0 = static_cast<int>(blockIdx.y) * kRows;
  const int out0 = static_cast<int>(blockIdx.x) / kCluster * kOutputs;
  const int begin = rank * p.parts * kPart;
  uint8_t* ring = memory + S::ring_at(p.parts) + thread / 32 * kSteps * kStepBytes;
  WeightLine line(p, out0 + 16 * warp, begin + group * p.parts * kPiece, p.parts);
#pragma unroll 1
  for (int a = 0; a < S::kAhead; ++a) line.copy(ring + a * kSlotBytes);
  if (!p.beside) wait_for_previous();
  copy_rows<kRows>(memory, p, row0, begin);
  wait_for_copies<0>();
  fence_async();
  __syncthreads();
  Sums<kRows> sums;
  multiply<kRows>(sums, line, ring,
                  wgmma_operand(shared_address(memory) + group * p.parts * S::kPieceBytes),
                  p.parts);

  cluster_sync();  // nobody reads what the sums take the place of
  auto* all = reinterpret_cast<float*>(memory);
  const int source = rank * kGroups + group, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float* to = &of_peer(all[(source * kOwned + g) * S::kSumStride + 2 * t], 2 * warp + h);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      const int i = 4 * j + 2 * h;
      *reinterpret_cast<float2*>(to + 8 * j) = {sums.small[i] + sums.large[i],
                                                sums.small[i + 1] + sums.large[i + 1]};
    }
  }
  cluster_sync();
#pragma unroll 1
  for (int i = thread; i < kRows * kOwned; i += kThreads) {
    const int row = i / kOwned, o = out0 + rank * kOwned + i % kOwned;
    if (row0 + row >= p.rows || o >= p.out_features) continue;
    float sum = p.bias ? p.bias[o] : 0.0f;
#pragma unroll
    for (int s = 0; s < kSources; ++s) sum += all[(s * kOwned + i % kOwned) * S::kSumStride + row];
    p.out[(row0 + row) * p.out_stride + o] = sum;
  }
  if (p.beside) wait_for_previous();
#endif
}

// Returns how many tiles of `size` hold n.
int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

int parts_of(int64_t in) { return static_cast<int>(tiles(in, kCluster * kPart)); }

template <int kRows>
void start(const Product& p, cudaStream_t stream) {
  using S = Shape<kRows>;
  const Launch how = {.grid = {static_cast<unsigned>(kCluster * tiles(p.out_features, kOutputs)),
                               static_cast<unsigned>(tiles(p.rows, kRows))},
                      .block = kThreads,
                      .shared = static_cast<size_t>(S::bytes(p.parts)),
                      .stream = stream,
                      .cluster = kCluster};
  const auto kernel = float_weights_rows_kernel<kRows>;
  if (how.shared > kSharedUnasked) allow_shared(kernel, how.shared);
  launch(kernel, how, p);
}

}  // namespace

bool float_weights_rows_take(const Tensor& x, const Linear& w) {
  constexpr int64_t kManyRows = 256;
  const int64_t rows = x.rows(), features = w.weight.rows();
  if (rows > kManyRows || Shape<64>::bytes(parts_of(w.weight.cols())) > kMostShared) return false;
  // Few tiles of float_weights_product() are faster, as long as all of them run at the same time.
  if (rows <= 32) return rows > 16 && tiles(features, 8) * tiles(rows, 16) > 32;
  return tiles(features, 32) * tiles(rows, 32) >= 8;
}

void float_weights_rows(Tensor out, Tensor x, const Linear& w, bool beside, cudaStream_t stream) {
  const Product p = {.out = out.as<float>(),
                     .x = static_cast<const __nv_bfloat16*>(x.data),
                     .w = w.weight.as<float>(),
                     .bias = w.bias ? w.bias.as<float>() : nullptr,
                     .out_stride = out.row_stride,
                     .x_stride = x.row_stride,
                     .rows = static_cast<int>(out.rows()),
                     .in = static_cast<int>(x.cols()),
                     .out_features = static_cast<int>(out.cols()),
                     .parts = parts_of(x.cols()),
                     .beside = beside};
  // Tiles of as few rows as lets all clusters run at the same time.
  const auto fit = [&](int rows) {
    return tiles(p.out_features, kOutputs) * tiles(p.rows, rows) <= kClusters;
  };
  if (fit(16))
    start<16>(p, stream);
  else if (fit(32))
    start<32>(p, stream);
  else if (fit(48))
    start<48>(p, stream);
  else if (fit(64) || Shape<88>::bytes(p.parts) > kMostShared)
    start<64>(p, stream);
  else
    start<88>(p, stream);
}

}  // namespace skiff::cuda
