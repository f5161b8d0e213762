// bench/ops/cuda/mla_world.cuh -- steps of latent attention over random caches, and what computes
// them.
#pragma once
#include <cuda_fp8.h>
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>

#include "harness.cuh"
#include "ops/cuda/mla/latent_forms.h"
#include "ops/latent_row.h"

namespace skiff::cuda::bench {

constexpr int kRank = 512, kRope = 64, kCols = kRank + kRope, kPage = 64;
// What an H200 multiplies at most (docs/performance_cuda_attention.md); what the device reads is
// measured.
constexpr double kMatrixLimit = 790e12;
inline double read_limit = 0;

struct Piece {
  int begin, rows;
};

inline Mla spec_of(int heads) {
  Mla spec{.heads = heads, .kv_rank = kRank, .nope_dim = 128, .rope_dim = kRope, .v_dim = 128};
  spec.rope = {.theta = 1e4f, .dim = kRope, .interleaved = true};
  spec.scale = 0.135234f;
  return spec;
}

struct Vector {
  int vector, seq, position;
};

// A cached bf16 vector for each block, of 512 threads: becomes a row of ops/latent_row.h, and the
// values that the row stands for.
static __global__ void quantize(__nv_bfloat16* vectors, uint8_t* rows, int row_bytes) {
  __shared__ float sizes[kRank];
  __nv_bfloat16* x = vectors + int64_t{blockIdx.x} * kCols;
  uint8_t* row = rows + int64_t{blockIdx.x} * row_bytes;
  const int d = static_cast<int>(threadIdx.x), group = d / kLatentGroup;
  const float value = __bfloat162float(x[d]);
  sizes[d] = fabsf(value);
  __syncthreads();
  float amax = 0;
  for (int i = 0; i < kLatentGroup; ++i) amax = fmaxf(amax, sizes[group * kLatentGroup + i]);
  int exponent;
  const float mantissa = frexpf(amax / 448, &exponent);
  const float scale = ldexpf(1, mantissa == 0.5f ? exponent - 1 : exponent);
  __nv_fp8_e4m3 code(value / scale);
  row[d] = code.__x;
  x[d] = __float2bfloat16_rn(static_cast<float>(code) * scale);
  if (d % kLatentGroup == 0) reinterpret_cast<float*>(row + kRank)[group] = scale;
  if (d < kRope) reinterpret_cast<__nv_bfloat16*>(row + kRank + 16)[d] = x[kRank + d];
}

inline Tensor up(const std::vector<int32_t>& v, std::initializer_list<int64_t> shape) {
  const Tensor t = make(DType::kI32, shape);
  check(cudaMemcpy(t.data, v.data(), v.size() * 4, cudaMemcpyHostToDevice), "copying");
  return t;
}

enum class Cache { kBF16, kRows };
constexpr Cache kCaches[] = {Cache::kBF16, Cache::kRows};
inline const char* name_of(Cache cache) { return cache == Cache::kRows ? "fp8 rows" : "bf16"; }

// A step over random caches, `layers` of them.
struct World {
  World(Cache cache, int heads, const std::vector<Piece>& pieces, int layers, int padding = 0)
      : spec(spec_of(heads)) {
    const int vector_bytes = cache == Cache::kRows ? LatentRow{kRank, kRope}.bytes() : 2 * kCols;
    std::mt19937 random(7);
    int total = 3;
    size_t width = 1;
    for (const Piece& p : pieces) {
      const int n = (p.begin + p.rows + kPage - 1) / kPage;
      total += n, width = std::max(width, static_cast<size_t>(n));
    }
    std::vector<int32_t> free(static_cast<size_t>(total)), table, positions;
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    for (size_t s = 0; s < pieces.size(); ++s) {
      const Piece& p = pieces[s];
      for (int i = 0; i < (p.begin + p.rows + kPage - 1) / kPage; ++i) {
        table.push_back(free.back());
        free.pop_back();
      }
      table.resize((s + 1) * width, -1);
      for (int r = 0; r < p.rows; ++r) {
        for (int h = 0; h < heads; ++h)
          vectors.push_back({static_cast<int>(vectors.size()), static_cast<int>(s), p.begin + r});
        positions.push_back(p.begin + r);
      }
      row_start.push_back(static_cast<int32_t>(positions.size()));
      kv_len.push_back(p.begin + p.rows);
      max_kv = std::max(max_kv, p.begin + p.rows);
      pairs += static_cast<double>(p.rows) * heads * (p.begin + (p.rows + 1) / 2.0);
      bytes += 1.0 * (p.begin + p.rows) * vector_bytes;
    }
    const int rows = static_cast<int>(positions.size()) + padding;
    positions.resize(static_cast<size_t>(rows), 5);
    const auto seqs = static_cast<int64_t>(pieces.size());
    batch.num_seqs = static_cast<int>(seqs);
    batch.num_tokens = rows;
    batch.positions = up(positions, {rows});
    batch.row_start = up(row_start, {seqs + 1});
    batch.kv_len = up(kv_len, {seqs});
    batch.pages = up(table, {seqs, static_cast<int64_t>(width)});
    batch.host_row_start = row_start;
    batch.host_kv_len = kv_len;
    for (int l = 0; l < layers; ++l) {
      KvLayer& kv = kvs.emplace_back();
      kv.k = random_tensor(total * int64_t{kPage}, kCols, 10 + static_cast<unsigned>(l));
      kv.k.dim = {total, kPage, 1, kCols};
      kv.k.row_stride = int64_t{kPage} * kCols;
      kv.page_size = kPage;
      kv.format = {.dtype = DType::kBF16};
      if (l == 0) values = static_cast<const __nv_bfloat16*>(kv.k.data);
      if (cache == Cache::kRows) make_rows(kv, vector_bytes);
    }
    q = random_tensor(int64_t{rows} * heads, 192, 1);
    q_latent = random_tensor(int64_t{rows} * heads, kRank, 2);
    out = make(DType::kBF16, {int64_t{rows} * heads, kRank});
  }
  ~World() {
    for (const Tensor& t : owned) cudaFree(t.data);
    for (const Tensor& t : {batch.positions, batch.row_start, batch.kv_len, batch.pages, out})
      cudaFree(t.data);
  }
  Tensor random_tensor(int64_t rows, int64_t cols, unsigned seed) {
    owned.push_back(random(DType::kBF16, {rows, cols}, seed));
    return owned.back();
  }
  // Only the first layer's values are kept.
  void make_rows(KvLayer& kv, int row_bytes) {
    const int64_t total = kv.k.dim[0], n = total * kPage;
    const Tensor from = owned.back(), rows = make(DType::kU8, {n, row_bytes});
    quantize<<<static_cast<unsigned>(n), kRank>>>(static_cast<__nv_bfloat16*>(from.data),
                                                  static_cast<uint8_t*>(rows.data), row_bytes);
    check(cudaDeviceSynchronize(), "quantizing");
    if (from.data != values) {
      cudaFree(from.data);
      owned.pop_back();
    }
    owned.push_back(rows);
    kv.k = rows;
    kv.k.dim = {total, kPage, 1, row_bytes};
    kv.k.row_stride = int64_t{kPage} * row_bytes;
    kv.format = {.dtype = DType::kF8E4M3};
  }
  Tensor q_rope() const { return q.col_range(128, kRope); }

  Mla spec;
  RaggedBatch batch;
  std::vector<int32_t> row_start = {0}, kv_len;
  std::vector<Vector> vectors;
  std::vector<KvLayer> kvs;
  const __nv_bfloat16* values = nullptr;  // those that the first layer holds
  std::vector<Tensor> owned;
  Tensor q, q_latent, out;
  int max_kv = 0;
  double pairs = 0, bytes = 0;
};

struct Machine {
  explicit Machine(bool whole) {
    check(cudaStreamCreate(&stream), "creating a stream");
    check(cudaMalloc(&scratch, kExpandScratch + HeadProducts::kScratchBytes), "allocating");
    const LatentAttention::Limits limits = {.max_seqs = 512, .max_tokens = 40000, .whole = whole};
    attention = std::make_unique<LatentAttention>(limits, Device{Device::kCuda, 0}, scratch, false);
    std::byte* const products_scratch = scratch + kExpandScratch;
    products = std::make_unique<HeadProducts>(products_scratch, false);
    expanded = std::make_unique<ExpandedAttention>(scratch, products_scratch);
  }
  void begin_step(const World& w) {
    std::vector<SmallCopy> copies;
    attention->plan_step(w.batch, copies, stream);
    if (!copies.empty()) deliver(copies, stream);
  }
  void attend(const World& w, const KvLayer& kv) {
    attention->attend(w.out, w.q_latent, w.q_rope(), w.spec, w.batch, kv, stream);
  }
  cudaStream_t stream{};
  std::byte* scratch{};
  std::unique_ptr<LatentAttention> attention;
  std::unique_ptr<HeadProducts> products;
  std::unique_ptr<ExpandedAttention> expanded;
};

// Prints the result of a check and counts it.
void report(bool good, const std::string& what);

// mla_expand_bench.cu: latent_attend where sequences are computed un-absorbed.
void check_expanded(Machine& m);
void time_expanded(Machine& m);

}  // namespace skiff::cuda::bench
