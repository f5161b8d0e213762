// bench/ops/cuda/weight_copies_bench.cu -- how fast weights come into shared memory by TMA when
// nothing is computed: boxes of a row-major matrix beside contiguous tiles, promotion to longer
// lines of the L2, depth of the ring, and how the tiles are divided among the blocks.
#include <cuda.h>

#include <string>

#include "harness.cuh"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda::bench {
namespace {

constexpr double kReadLimit = 4.5e12;
constexpr size_t kWeightBytes = size_t{2} << 30;
constexpr int kChunk = 64;  // columns of a box: 128 bytes
constexpr int kMaxStages = 64, kMaxLaunches = 64;

enum class Divide {
  kShares,       // each block has an equal stretch of the list of all boxes, tile after tile
  kWaves,        // whole tiles, block by block
  kInterleaved,  // box i goes to block i modulo their number
  kQueue,        // pieces of eight boxes, claimed with an atomic
};
constexpr const char* kNames[] = {"shares", "waves", "interleaved", "queue"};
constexpr int kPiece = 8;

struct Args {
  int tiles, chunks;  // boxes of a tile
  int box_rows, stages;
  Divide divide;
  const char* contiguous;  // null: boxes by the map
  unsigned* queue;
  Keep keep;
  bool overlap;
  unsigned* sum;  // all words, by exclusive or; for checks only
};

class Walk {
 public:
  __device__ explicit Walk(const Args& a) : a_(a), all_(a.tiles * a.chunks) {
    const int share = (all_ + gridDim.x - 1) / gridDim.x;
    if (a.divide == Divide::kShares) at_ = blockIdx.x * share, end_ = min(all_, at_ + share);
    if (a.divide == Divide::kWaves) at_ = blockIdx.x * a.chunks, end_ = min(all_, at_ + a.chunks);
    if (a.divide == Divide::kInterleaved) at_ = blockIdx.x, end_ = all_;
    if (a.divide == Divide::kQueue && threadIdx.x == 0)
      claim(blockIdx.x), claimed_ = atomicAdd(a.queue, 1);
  }
  __device__ bool next(int* box) {
    if (at_ >= end_ && !refill()) return false;
    *box = at_;
    at_ += a_.divide == Divide::kInterleaved ? gridDim.x : 1;
    return true;
  }

 private:
  __device__ void claim(int piece) {
    at_ = piece * kPiece;
    end_ = min(all_, at_ + kPiece);
  }
  __device__ bool refill() {
    if (a_.divide == Divide::kWaves) {
      at_ += (gridDim.x - 1) * a_.chunks;
      end_ = min(all_, at_ + a_.chunks);
    } else if (a_.divide == Divide::kQueue) {  // claimed one piece ahead
      claim(static_cast<int>(gridDim.x + claimed_));
      if (at_ < end_) claimed_ = atomicAdd(a_.queue, 1);
    }
    return at_ < end_;
  }
  const Args& a_;
  int all_, at_ = 0, end_ = 0;
  unsigned claimed_ = 0;
};

__device__ void copy_contiguous(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                Keep keep) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(static_cast<uint64_t>(keep))
      : "memory");
}

template <bool kCheck>
__global__ void __launch_bounds__(32)
    copy_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ Args a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[kMaxStages];
  char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t to = shared_address(memory), full = shared_address(barriers);
  const uint32_t bytes = a.box_rows * kChunk * 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.stages; ++i) barrier_init(full + 8 * i, 1);
    barrier_init_done();
    fence_async();
  }
  __syncwarp();
  if (a.overlap) let_next_start();
  if (!a.overlap) wait_for_previous();
  if (kCheck || threadIdx.x == 0) {
    const auto load = [&](int box, int stage) {
      if (threadIdx.x != 0) return;
      barrier_expect(full + 8 * stage, bytes);
      if (a.contiguous)
        copy_contiguous(to + stage * bytes, a.contiguous + int64_t{box} * bytes, bytes,
                        full + 8 * stage, a.keep);
      else
        copy_tile(to + stage * bytes, map, full + 8 * stage, box % a.chunks * kChunk,
                  box / a.chunks * a.box_rows, 0, 0, 0, a.keep);
    };
    Walk walk(a);
    int box = 0, loaded = 0;
    unsigned sum = 0;
    const auto take = [&](int i) {
      const int stage = i % a.stages;
      barrier_wait(full + 8 * stage, i / a.stages & 1);
      if constexpr (kCheck) {
        for (uint32_t w = threadIdx.x; w < bytes / 4; w += 32)
          sum ^= reinterpret_cast<const unsigned*>(memory + stage * bytes)[w];
        fence_async();
        __syncwarp();
      }
    };
    const auto next = [&] {
      if (!kCheck) return walk.next(&box);
      int more = threadIdx.x == 0 && walk.next(&box);
      box = __shfl_sync(0xffffffffu, box, 0);
      return __shfl_sync(0xffffffffu, more, 0) != 0;
    };
    int taken = 0;
    while (next()) {
      if (loaded >= a.stages) take(taken++);
      load(box, loaded++ % a.stages);
    }
    while (taken < loaded) take(taken++);
    if (kCheck) atomicXor(a.sum, sum);
  }
  if (a.overlap) wait_for_previous();
#endif
}

__global__ void sum_kernel(const unsigned* data, size_t words, unsigned* sum) {
  unsigned mine = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
       i += size_t{gridDim.x} * blockDim.x)
    mine ^= data[i];
  atomicXor(sum, mine);
}

// Reads a matrix by ordinary loads: what the memory gives.
__global__ void __launch_bounds__(512) read_kernel(const uint4* data, int64_t n, unsigned* sum) {
  uint4 v = {0, 0, 0, 0};
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += 4 * step) {
    uint4 got[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j * step < n) got[j] = __ldcs(data + i + j * step);
#pragma unroll
    for (int j = 0; j < 4; ++j) v.x ^= got[j].x ^ got[j].y, v.y ^= got[j].z ^ got[j].w;
  }
  if ((v.x ^ v.y) == 0x12345678) atomicXor(sum, 1);
}

CUtensorMap box_map(void* data, int64_t rows, int64_t in, int box_rows,
                    CUtensorMapL2promotion promotion) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking up cuTensorMapEncodeTiled");
  const auto r = static_cast<uint64_t>(rows), row = static_cast<uint64_t>(in) * 2;
  const uint64_t size[] = {row / 2, r, 1, 1, 1}, stride[] = {row, r * row, r * row, r * row};
  const uint32_t box[] = {kChunk, static_cast<uint32_t>(box_rows), 1, 1, 1},
                 every[] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, data, size, stride, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw DeviceError("cannot encode a tensor map");
  return map;
}

struct Variant {
  const char* what;
  bool contiguous;
  CUtensorMapL2promotion promotion;
  int box_rows, ring_kb;
  Divide divide;
  Keep keep = Keep::kFirstToGo;
  bool overlap = false;
};
constexpr auto kNone = CU_TENSOR_MAP_L2_PROMOTION_NONE;
constexpr auto k128 = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
constexpr auto k256 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
constexpr Variant kVariants[] = {
    {"boxes, no promotion", false, kNone, 128, 205, Divide::kShares},
    {"boxes, 128", false, k128, 128, 205, Divide::kShares},
    {"boxes, 256", false, k256, 128, 205, Divide::kShares},
    {"contiguous", true, kNone, 128, 205, Divide::kShares},
    {"boxes, no promotion", false, kNone, 128, 205, Divide::kWaves},
    {"boxes, 256", false, k256, 128, 205, Divide::kWaves},
    {"contiguous", true, kNone, 128, 205, Divide::kWaves},
    {"boxes, no promotion", false, kNone, 128, 205, Divide::kInterleaved},
    {"boxes, 128", false, k128, 128, 205, Divide::kInterleaved},
    {"boxes, 256", false, k256, 128, 205, Divide::kInterleaved},
    {"contiguous", true, kNone, 128, 205, Divide::kInterleaved},
    {"boxes, no promotion", false, kNone, 128, 205, Divide::kQueue},
    {"boxes, 128", false, k128, 128, 205, Divide::kQueue},
    {"boxes, 256", false, k256, 128, 205, Divide::kQueue},
    {"contiguous", true, kNone, 128, 205, Divide::kQueue},
    {"boxes, 256", false, k256, 256, 205, Divide::kShares},
    {"boxes, 256", false, k256, 256, 205, Divide::kQueue},
    {"boxes, no promotion", false, kNone, 256, 205, Divide::kQueue},
    {"contiguous", true, kNone, 256, 205, Divide::kQueue},
    {"boxes, 256", false, k256, 128, 128, Divide::kShares},
    {"boxes, 256", false, k256, 128, 64, Divide::kShares},
    {"boxes, 256", false, k256, 128, 128, Divide::kQueue},
    {"boxes, 256", false, k256, 128, 64, Divide::kQueue},
    {"contiguous", true, kNone, 128, 128, Divide::kQueue},
    {"contiguous", true, kNone, 128, 64, Divide::kQueue},
    {"boxes, 256", false, k256, 64, 205, Divide::kQueue},
    {"contiguous", true, kNone, 64, 205, Divide::kQueue},
    {"boxes, 256, kept", false, k256, 128, 205, Divide::kShares, Keep::kNormal},
    {"boxes, 256, kept", false, k256, 128, 205, Divide::kQueue, Keep::kNormal},
    {"boxes, no promotion, overlap", false, kNone, 128, 205, Divide::kShares, Keep::kFirstToGo,
     true},
    {"boxes, 256, overlap", false, k256, 128, 205, Divide::kShares, Keep::kFirstToGo, true},
    {"contiguous, overlap", true, kNone, 128, 205, Divide::kShares, Keep::kFirstToGo, true},
    {"boxes, 256, overlap", false, k256, 128, 205, Divide::kQueue, Keep::kFirstToGo, true},
    {"contiguous, overlap", true, kNone, 128, 205, Divide::kQueue, Keep::kFirstToGo, true},
};

struct Shape {
  int64_t out, in;
};
constexpr Shape kShapes[] = {{28672, 4096}, {4096, 14336}, {6144, 4096}, {4096, 4096}};

class Bench {
 public:
  Bench() {
    check(cudaStreamCreate(&stream_), "starting");
    check(cudaMalloc(&weights_, kWeightBytes), "allocating");
    check(cudaMalloc(&words_, (kMaxLaunches + 2) * sizeof(unsigned)), "allocating");
    fill_kernel<<<2048, 256>>>(weights_, false, kWeightBytes / 2, 11, 0.5f);
    check(cudaDeviceSynchronize(), "filling");
    allow_shared(copy_kernel<false>, 206 * 1024);
    allow_shared(copy_kernel<true>, 206 * 1024);
    blocks_ = attribute(cudaDevAttrMultiProcessorCount);
  }
  int failures = 0;

  void run(const Variant& v) {
    std::string line;
    for (const Shape& s : kShapes) {
      if (!right(v, s)) ++failures, line += "  WRONG";
      const int copies = copies_of(s);
      const double us = graph_us([&] { launches(v, s, copies); }, stream_) / copies;
      line += fmt::format("  {:6.1f} us {:4.0f} GB/s {:3.0f} %", us, bytes(s) / us / 1e3,
                          100 * bytes(s) / us / 1e-6 / kReadLimit);
    }
    std::printf("%-30s %-11s %3d rows %3d KB%s\n", v.what, kNames[static_cast<size_t>(v.divide)],
                v.box_rows, v.ring_kb, line.c_str());
    std::fflush(stdout);
  }
  void read() {
    std::string line;
    for (const Shape& s : kShapes) {
      const int copies = copies_of(s);
      const double us = graph_us(
                            [&] {
                              for (int i = 0; i < copies; ++i)
                                read_kernel<<<4 * blocks_, 512, 0, stream_>>>(
                                    static_cast<const uint4*>(at(s, i)),
                                    static_cast<int64_t>(bytes(s) / 16), words_);
                            },
                            stream_) /
                        copies;
      line += fmt::format("  {:6.1f} us {:4.0f} GB/s {:3.0f} %", us, bytes(s) / us / 1e3,
                          100 * bytes(s) / us / 1e-6 / kReadLimit);
    }
    std::printf("%-56s%s\n", "ordinary loads", line.c_str());
  }

 private:
  static double bytes(const Shape& s) { return 2.0 * static_cast<double>(s.out * s.in); }
  static int copies_of(const Shape& s) {
    return static_cast<int>(std::min(kWeightBytes / static_cast<size_t>(bytes(s)),
                                     (size_t{400} << 20) / static_cast<size_t>(bytes(s)) + 1));
  }
  void* at(const Shape& s, int copy) {
    return static_cast<char*>(weights_) + static_cast<size_t>(copy) * static_cast<size_t>(bytes(s));
  }
  Args args_of(const Variant& v, const Shape& s, int copy) {
    return {.tiles = static_cast<int>(s.out / v.box_rows),
            .chunks = static_cast<int>(s.in / kChunk),
            .box_rows = v.box_rows,
            .stages = v.ring_kb * 1024 / (v.box_rows * kChunk * 2),
            .divide = v.divide,
            .contiguous = v.contiguous ? static_cast<const char*>(at(s, copy)) : nullptr,
            .queue = words_ + 2 + copy,
            .keep = v.keep,
            .overlap = v.overlap,
            .sum = words_ + 1};
  }
  void launches(const Variant& v, const Shape& s, int copies, bool checking = false) {
    check(cudaMemsetAsync(words_ + 1, 0, (kMaxLaunches + 1) * sizeof(unsigned), stream_),
          "clearing");
    for (int i = 0; i < copies; ++i) {
      const Args a = args_of(v, s, i);
      const CUtensorMap map = box_map(at(s, i), s.out, s.in, v.box_rows, v.promotion);
      const Launch how = {blocks_, 32,
                          1024 + static_cast<size_t>(a.stages) * v.box_rows * kChunk * 2, stream_};
      launch(checking ? copy_kernel<true> : copy_kernel<false>, how, map, a);
    }
  }
  bool right(const Variant& v, const Shape& s) {
    launches(v, s, 1, true);
    check(cudaStreamSynchronize(stream_), "checking");
    const unsigned got = host<unsigned>(words_ + 1, 1)[0];
    check(cudaMemset(words_ + 1, 0, 4), "clearing");
    sum_kernel<<<1024, 256>>>(static_cast<const unsigned*>(at(s, 0)),
                              static_cast<size_t>(bytes(s)) / 4, words_ + 1);
    return got == host<unsigned>(words_ + 1, 1)[0];
  }

  cudaStream_t stream_ = nullptr;
  void* weights_ = nullptr;
  unsigned* words_ = nullptr;
  int blocks_ = 0;
};

int run() {
  Bench bench;
  std::printf(
      "%-56s  28672x4096                4096x14336                6144x4096                "
      " 4096x4096\n",
      "");
  bench.read();
  for (const Variant& v : kVariants) bench.run(v);
  std::printf("%d failures\n", bench.failures);
  return bench.failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main() {
  using namespace skiff::cuda::bench;
  return status_of(run);
}
