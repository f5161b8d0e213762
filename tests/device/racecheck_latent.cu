// The kernels of latent attention where every lane of a warp arrives at barriers for itself, beside
// those in service, where after __syncwarp() one lane arrives for its warp. All else is the same
// code (ops/cuda/mla/attend_kernel.cuh, rows_kernel.cuh with room for 16, 32 or 64 vectors).
// racecheck (CUDA 13.0; H100, rows on an H200) reports nothing of the first but, of 8-bit rows, the
// units of queries, between whose accesses all threads of both warpgroups meet at a named barrier;
// what it reports of the second is that it does not follow accesses of a warp through __syncwarp()
// to the arrival of one lane (racecheck_ring.cu). Results are compared with the formula.
//   nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++20 -O2 -I ../../src racecheck_latent.cu -o
//   latent for how in warp lanes; do for cache in bf16 rows16 rows32 rows64; do
//     compute-sanitizer --tool racecheck ./latent $how $cache; done; done
#include <cuda_fp8.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/mla/attend_kernel.cuh"
#include "ops/cuda/mla/rows_kernel.cuh"

using namespace skiff::cuda;
using namespace skiff::cuda::latent;

namespace {

constexpr int kHeads = 16, kPage = 64, kWords = kRank + kRope;

struct CopiedByLanes : CopiedTiles {
  static constexpr int kArrivingLanes = 32;
};
template <int kVectors>
struct RowsByLanes : RowTiles<kVectors> {
  static constexpr int kArrivingLanes = 32;
};

template <class Tiles>
__global__ void __launch_bounds__(kRowsGroups* kGroupThreads, 1)
    rows_kernel(const __grid_constant__ LatentPlanArgs p) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
  extern __shared__ __align__(1024) uint8_t memory[];
  rows_block<Tiles>(p, memory);
#endif
}

// Runs the kernel of a kind of tiles.
template <class Tiles>
void start(const LatentPlanArgs& p, const CUtensorMap& map) {
  if constexpr (requires { Tiles::kVectors; }) {
    constexpr int kBytes = sizeof(RowsShared<Tiles>);
    cudaFuncSetAttribute(rows_kernel<Tiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    rows_kernel<Tiles><<<p.blocks, kRowsGroups * kGroupThreads, kBytes>>>(p);
  } else {
    constexpr int kBytes = sizeof(Shared<Tiles>);
    cudaFuncSetAttribute(latent_kernel<Tiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    latent_kernel<Tiles><<<p.blocks, kAttendGroups * kGroupThreads, kBytes>>>(p, map);
  }
}

template <class T>
T* device(const std::vector<T>& v) {
  T* p = nullptr;
  cudaMalloc(&p, v.size() * sizeof(T));
  cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  return p;
}

float value(__nv_bfloat16 x) { return __bfloat162float(x); }

CUtensorMap map_of(void* data, uint64_t pages) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                   &result);
  const cuuint64_t size[] = {kWords, 1, kPage, pages};
  const cuuint64_t stride[] = {kWords * 2, kWords * 2, kPage * kWords * 2};
  const cuuint32_t box[] = {64, 1, kLatentTile, 1}, every[] = {1, 1, 1, 1};
  CUtensorMap map;
  reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, size, stride, box, every,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

// Decodes of sequences of one tile and of several, which one block attends to, or two.
struct Case {
  std::vector<int> lengths = {200, 64, 1, 300, 130, 257, 70};
  std::vector<__nv_bfloat16> cache, q_latent, q_rope;
  std::vector<uint8_t> rows;
  std::vector<int32_t> pages, positions, row_start = {0}, kv_len;
  int width = 0, tiles = 0;
  std::vector<LatentItem> items;

  Case() {
    std::mt19937 rng(5);
    // Elements that e4m3 holds, so that both caches have the same values.
    const auto draw = [&] { return static_cast<float>(static_cast<int>(rng() % 31) - 15) / 8; };
    width = 5;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int n = (lengths[s] + kPage - 1) / kPage;
      items.push_back({.seq = static_cast<int>(s),
                       .first = static_cast<int>(s) * kHeads,
                       .count = kHeads,
                       .kv_len = lengths[s],
                       .tiles = n,
                       .base = tiles,
                       .stored = lengths[s] - 1});
      for (int i = 0; i < width; ++i) pages.push_back(i < n ? tiles + i : -1);
      tiles += n;
      positions.push_back(lengths[s] - 1);
      row_start.push_back(static_cast<int>(s) + 1);
      kv_len.push_back(lengths[s]);
    }
    for (int i = 0; i < tiles * kPage; ++i) {
      uint8_t row[kRowBytes] = {};
      for (int d = 0; d < kWords; ++d) {
        const float x = draw();
        cache.push_back(__float2bfloat16_rn(x));
        if (d < kRank)
          row[d] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
        else
          std::memcpy(row + kRopeAt + 2 * (d - kRank), &cache.back(), 2);
      }
      const float one = 1;
      for (int g = 0; g < 4; ++g) std::memcpy(row + kScalesAt + 4 * g, &one, 4);
      rows.insert(rows.end(), row, row + kRowBytes);
    }
    for (size_t i = 0; i < lengths.size() * kHeads; ++i) {
      for (int d = 0; d < kRank; ++d) q_latent.push_back(__float2bfloat16_rn(draw()));
      for (int d = 0; d < kRope; ++d) q_rope.push_back(__float2bfloat16_rn(draw()));
    }
  }

  double expected(int vector, int column, double scale) const {
    const LatentItem& item = items[static_cast<size_t>(vector / kHeads)];
    const __nv_bfloat16* first = cache.data() + int64_t{item.base} * kPage * kWords;
    double best = -INFINITY, sum = 0, mean = 0;
    std::vector<double> score;
    for (int t = 0; t < item.kv_len; ++t) {
      double s = 0;
      for (int d = 0; d < kWords; ++d) {
        const auto q = d < kRank ? q_latent[static_cast<size_t>(vector * kRank + d)]
                                 : q_rope[static_cast<size_t>(vector * kRope + d - kRank)];
        s += double{value(q)} * double{value(first[t * kWords + d])};
      }
      score.push_back(s * scale);
      best = std::max(best, score.back());
    }
    for (int t = 0; t < item.kv_len; ++t) {
      const double p = std::exp(score[static_cast<size_t>(t)] - best);
      sum += p, mean += p * double{value(first[t * kWords + column])};
    }
    return mean / sum;
  }
};

template <class Tiles>
std::vector<__nv_bfloat16> run(const Case& c, bool rows, int blocks) {
  const float scale = 0.01f;
  // Blocks take whole items in turn, until the last, which takes the rest.
  std::vector<LatentShare> shares;
  const int each = static_cast<int>(c.items.size()) / blocks;
  for (int b = 0; b < blocks; ++b) {
    const bool last = b + 1 == blocks;
    const auto first = static_cast<size_t>(b * each);
    shares.push_back({.item = b * each,
                      .begin = c.items[first].base,
                      .end = last ? c.tiles : c.items[first + static_cast<size_t>(each)].base});
  }
  const auto n = static_cast<int>(c.items.size());
  const std::vector<LatentHead> head = {
      {.total = c.tiles, .width = 1, .items = n, .cut = 0, .vectors = n * kHeads}};
  const std::vector<__nv_bfloat16> empty(static_cast<size_t>(n * kHeads * kRank),
                                         __float2bfloat16_rn(NAN));
  __nv_bfloat16* out = device(empty);
  const LatentPlanArgs p = {
      .args = {.rows = {.row_start = device(c.row_start),
                        .positions = device(c.positions),
                        .kv_len = device(c.kv_len),
                        .pages = device(c.pages),
                        .pages_stride = c.width,
                        .num_seqs = n,
                        .num_tokens = n},
               .cache = {.data = rows ? reinterpret_cast<std::byte*>(device(c.rows))
                                      : reinterpret_cast<std::byte*>(device(c.cache)),
                         .page_bytes = kPage * (rows ? kRowBytes : kWords * 2),
                         .page_size = kPage,
                         .vector_bytes = rows ? kRowBytes : kWords * 2,
                         .element = rows ? LatentElement::kRow : LatentElement::kBF16,
                         .scales_at = kScalesAt,
                         .rope_at = kRopeAt},
               .out = out,
               .q_latent = device(c.q_latent),
               .q_rope = device(c.q_rope),
               .out_stride = kRank,
               .latent_stride = kRank,
               .rope_stride = kRope,
               .bf16 = true,
               .heads = kHeads,
               .rank = kRank,
               .rope = kRope,
               .scale = scale},
      .head = device(head),
      .shares = device(shares),
      .cut = nullptr,
      .items = device(c.items),
      .scale_log2 = scale * 1.44269504f,
      .blocks = blocks,
      .parts = nullptr};
  const CUtensorMap map =
      rows ? CUtensorMap{} : map_of(p.args.cache.data, static_cast<uint64_t>(c.tiles));
  start<Tiles>(p, map);
  std::vector<__nv_bfloat16> got(empty.size());
  cudaMemcpy(got.data(), out, got.size() * 2, cudaMemcpyDeviceToHost);
  return got;
}

}  // namespace

template <class ByWarp, class ByLanes>
std::vector<__nv_bfloat16> run_either(const Case& c, bool lanes, bool rows, int blocks) {
  return lanes ? run<ByLanes>(c, rows, blocks) : run<ByWarp>(c, rows, blocks);
}

std::vector<__nv_bfloat16> run_named(const Case& c, bool lanes, const std::string& cache,
                                     int blocks) {
  if (cache == "rows16") return run_either<RowTiles<16>, RowsByLanes<16>>(c, lanes, true, blocks);
  if (cache == "rows32") return run_either<RowTiles<32>, RowsByLanes<32>>(c, lanes, true, blocks);
  if (cache == "rows64") return run_either<RowTiles<64>, RowsByLanes<64>>(c, lanes, true, blocks);
  return run_either<CopiedTiles, CopiedByLanes>(c, lanes, false, blocks);
}

int main(int argc, char** argv) {
  const bool lanes = argc > 1 && std::strcmp(argv[1], "lanes") == 0;
  const std::string cache = argc > 2 ? argv[2] : "bf16";
  const Case c;
  double worst = 0;
  for (const int blocks : {1, 2}) {
    const auto got = run_named(c, lanes, cache, blocks);
    for (size_t i = 0; i < got.size(); i += 37) {
      const double want =
          c.expected(static_cast<int>(i) / kRank, static_cast<int>(i) % kRank, 0.01);
      const double error = std::abs(double{value(got[i])} - want);
      worst = error <= worst ? worst : error;  // NaN sticks
    }
  }
  // Weights and results are rounded to bf16, and means lie within 15/8.
  const bool good = worst <= 2 * 15.0 / 8 / 256;
  std::printf("%s, %s: %s, error %.5f: %s\n", lanes ? "lanes" : "warp", cache.c_str(),
              cudaGetErrorString(cudaGetLastError()), worst, good ? "good" : "WRONG");
  return !good;
}
