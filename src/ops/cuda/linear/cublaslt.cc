#include "ops/cuda/linear/cublaslt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/cuda/align.h"
#include "ops/cuda/check.h"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda {
namespace {

constexpr int kCandidates = 8;
// The alignment that takes() asks for. cuBLASLt's default is 256 bytes, more than arenas give.
constexpr uint32_t kAlignment = 16;
// Decode steps have no more rows: there split-K is worth 15 % (Qwen2.5-7B, 128 rows).
constexpr int64_t kOneOrderRows = 256;
// An algorithm that is kFarBehind times slower than the best runs only when the others are kEnough
// runs ahead of it.
constexpr int kEnough = 8;
constexpr float kFarBehind = 1.15f;
constexpr int kFew = 4;  // runs of each algorithm where one call tries all
constexpr int64_t kCacheBytes = int64_t{64} << 20;  // more than any device's L2 has

void check_lt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      fmt::format("cuBLASLt error while {}: {}", doing, cublasLtGetStatusString(status)));
}

ProductKey key_of(const Tensor& out, const Tensor& x) {
  return {.rows = x.rows(),
          .in = x.cols(),
          .features = out.cols(),
          .x_stride = x.row_stride,
          .out_stride = out.row_stride,
          .out_type = static_cast<int32_t>(out.dtype)};
}
ProductKey bucket_of(ProductKey key) {
  int64_t upper = 8;
  while (upper < key.rows) upper *= 2;
  key.rows = upper;
  return key;
}

uint64_t capability() {
  return static_cast<uint64_t>(10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                               attribute(cudaDevAttrComputeCapabilityMinor));
}

cudaDataType_t cuda_type(DType t) { return t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

}  // namespace

// cuBLASLt is column-major: its A is w and its B is x, both stored with `in` running fastest.
struct CublasLt::Problem {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;

  Problem(const Tensor& o, const Tensor& xs, const Tensor& ws) {
    check_lt(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_lt(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed),
             "describing");
    const auto rows = static_cast<uint64_t>(xs.rows()), in = static_cast<uint64_t>(xs.cols()),
               features = static_cast<uint64_t>(o.cols());
    layout(&w, ws.dtype, in, features, static_cast<int64_t>(in));
    layout(&x, xs.dtype, in, rows, xs.row_stride);
    layout(&out, o.dtype, features, rows, o.row_stride);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  ~Problem() {
    cublasLtMatrixLayoutDestroy(w);
    cublasLtMatrixLayoutDestroy(x);
    cublasLtMatrixLayoutDestroy(out);
    cublasLtMatmulDescDestroy(product);
  }

  static void layout(cublasLtMatrixLayout_t* l, DType t, uint64_t rows, uint64_t cols, int64_t ld) {
    check_lt(cublasLtMatrixLayoutCreate(l, cuda_type(t), rows, cols, ld), "describing a matrix");
  }
};

CublasLt::CublasLt() {
  check_lt(cublasLtCreate(&handle_), "starting");
  free_.resize(kMaxPending);
  for (auto& [begin, end] : free_) {
    check(cudaEventCreate(&begin), "making an event");
    check(cudaEventCreate(&end), "making an event");
  }
}

CublasLt::~CublasLt() {
  for (const Timing& t : pending_) free_.emplace_back(t.begin, t.end);
  for (const auto& [begin, end] : free_) {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  cublasLtDestroy(handle_);
}

float CublasLt::Trial::typical() const {
  if (ms.empty()) return std::numeric_limits<float>::infinity();
  std::vector<float> sorted = ms;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

const CublasLt::Trial& CublasLt::fastest(const std::vector<Trial>& trials) {
  return *std::ranges::min_element(trials, {}, &Trial::typical);
}

bool CublasLt::takes(const Tensor& out, const Tensor& x, const Linear& w) {
  return x.dtype == DType::kBF16 && is_plain(w, DType::kBF16) && w.experts == 0 &&
         is_aligned(out, kAlignment) && is_aligned(x, kAlignment) &&
         is_aligned(w.weight, kAlignment);
}

bool CublasLt::works(const cublasLtMatmulAlgo_t& algo, const Problem& problem) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, problem.product, problem.w, problem.x, problem.out,
                                 problem.out, &algo, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

// The algorithm of a bucket of row counts, adopted or measured here.
std::optional<cublasLtMatmulAlgo_t> CublasLt::measured(const ProductKey& bucket) const {
  if (const auto known = adopted_.find(bucket); known != adopted_.end()) return known->second;
  const auto tried = trials_.find(bucket);
  if (tried == trials_.end()) return {};
  const Trial& best = fastest(tried->second);
  if (best.ms.empty()) return {};
  return best.algo;
}

std::optional<cublasLtMatmulAlgo_t> CublasLt::choose(const ProductKey& key,
                                                     const Problem& problem) {
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  std::optional<cublasLtMatmulAlgo_t>& choice = chosen_[key];
  const auto best = measured(bucket_of(key));
  if (best && works(*best, problem)) return choice = best;
  const std::vector<cublasLtMatmulAlgo_t> proposed = propose(problem, key.rows, 1);
  if (!proposed.empty()) choice = proposed.front();
  return choice;
}

TunedProducts CublasLt::tuned() const {
  TunedProducts all = {.library = cublasLtGetVersion(), .capability = capability(), .products = {}};
  std::map<ProductKey, cublasLtMatmulAlgo_t> best = adopted_;
  for (const auto& [key, trials] : trials_)
    if (const auto algo = measured(key)) best.emplace(key, *algo);
  for (const auto& [key, algo] : best)
    all.products.push_back({key, std::bit_cast<ProductAlgorithm>(algo)});
  return all;
}

bool CublasLt::adopt(const TunedProducts& tuned) {
  if (tuned.library != cublasLtGetVersion() || tuned.capability != capability()) return false;
  for (const auto& [key, algorithm] : tuned.products)
    adopted_[key] = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  chosen_.clear();
  return true;
}

bool CublasLt::run(const Problem& problem, const cublasLtMatmulAlgo_t& algo, const Tensor& out,
                   const Tensor& x, const Linear& w, void* workspace, cudaStream_t stream) {
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle_, problem.product, &one, w.weight.data, problem.w, x.data, problem.x,
                        &zero, out.data, problem.out, out.data, problem.out, &algo, workspace,
                        kWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
}

bool CublasLt::product(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                       cudaStream_t stream) {
  if (out.rows() == 0) return true;
  const Problem problem(out, x, w.weight);
  const auto algo = choose(key_of(out, x), problem);
  return algo && run(problem, *algo, out, x, w, workspace, stream);
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::propose(const Problem& problem, int64_t rows,
                                                    int max_count) {
  cublasLtMatmulPreference_t limits = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&limits), "tuning");
  const auto limit = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(limits, what, &value, sizeof value), "tuning");
  };
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(max_count));
  int found = 0;
  limit(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    limit(operand, kAlignment);
  for (const uint32_t reductions :
       {rows > kOneOrderRows ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_MASK}) {
    limit(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, problem.product, problem.w, problem.x, problem.out,
                                       problem.out, limits, max_count, results.data(), &found);
    if (status == CUBLAS_STATUS_SUCCESS && found > 0) break;
    found = 0;
  }
  cublasLtMatmulPreferenceDestroy(limits);
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (int i = 0; i < found; ++i) algos.push_back(results[static_cast<size_t>(i)].algo);
  return algos;
}

void CublasLt::collect_oldest() {
  const Timing t = pending_.front();
  pending_.pop_front();
  free_.emplace_back(t.begin, t.end);
  float ms = 0;
  check(cudaEventSynchronize(t.end), "tuning products");
  check(cudaEventElapsedTime(&ms, t.begin, t.end), "tuning products");
  t.trial->ms.push_back(ms);
}

void CublasLt::settle() {
  while (!pending_.empty()) collect_oldest();
  chosen_.clear();
}

bool CublasLt::try_one(std::vector<Trial>& trials, const std::function<bool(const Trial&)>& run,
                       cudaStream_t stream) {
  const float limit = kFarBehind * fastest(trials).typical();
  Trial& trial = *std::ranges::min_element(trials, {}, [&](const Trial& t) {
    return !t.ms.empty() && t.typical() > limit ? kEnough + t.runs : t.runs;
  });
  if (free_.empty()) collect_oldest();
  const auto [begin, end] = free_.back();
  check(cudaEventRecord(begin, stream), "tuning products");
  const bool ran = run(trial);
  check(cudaEventRecord(end, stream), "tuning products");
  if (!ran) {
    trial.runs = std::numeric_limits<int>::max() / 2;
  } else if (trial.runs++ > 0) {  // the first run may include loading the kernel
    free_.pop_back();
    pending_.push_back({&trial, begin, end});
  }
  return ran;
}

bool CublasLt::tune(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                    cudaStream_t stream) {
  const ProductKey key = bucket_of(key_of(out, x));
  if (adopted_.contains(key)) return product(out, x, w, workspace, stream);
  const Problem problem(out, x, w.weight);
  std::vector<Trial>& trials = trials_[key];
  if (trials.empty()) {
    for (const cublasLtMatmulAlgo_t& algo : propose(problem, x.rows(), kCandidates))
      trials.push_back({.algo = algo, .ms = {}});
  }
  if (trials.empty()) return false;
  chosen_.clear();
  const auto by = [&](const Trial& t) {
    return run(problem, t.algo, out, x, w, workspace, stream);
  };
  const int64_t bytes_read = w.weight.elements() * static_cast<int64_t>(bytes(w.weight.dtype));
  const auto waiting = [](const Trial& t) { return t.runs < kFew; };
  bool ran = false;
  do {
    ran |= try_one(trials, by, stream);
  } while (bytes_read > kCacheBytes && std::ranges::any_of(trials, waiting));
  return ran;
}

}  // namespace skiff::cuda
