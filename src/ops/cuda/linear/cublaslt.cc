#include "ops/cuda/linear/cublaslt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ranges>

#include "ops/cuda/align.h"
#include "ops/cuda/check.h"
#include "ops/cuda/linear/row_counts.h"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda {
namespace {

constexpr int kProposals = 8;
// With few rows GEMMs differ by how they load weights, and all proposals are measured. With many
// they differ by how well their tiles fill the device: kFirst of the best ranked are measured, and
// kFitting that waste least of their last wave.
constexpr size_t kFirst = 2, kFitting = 1;
// Algorithms within kClose of the fastest run again, until each has run kRuns times.
constexpr float kClose = 1.05f;
constexpr int kRuns = 2;
constexpr int64_t kManyRows = 2304;  // with more, a run takes so long that one is enough
// Steps of fewer rows are rehearsed at each size that is recorded, or use the next one's algorithm.
constexpr int64_t kRehearsedRows = 64;
constexpr int kFew = 4;  // runs of each algorithm where one call tries all
constexpr int64_t kCacheBytes = int64_t{64} << 20;  // more than any device's L2 has

uint64_t capability() {
  return static_cast<uint64_t>(10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                               attribute(cudaDevAttrComputeCapabilityMinor));
}

// How much longer a GEMM takes than with a full last wave.
float waste(const LtGemm::Proposal& p) { return p.waves > 0 ? std::ceil(p.waves) / p.waves : 1; }

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::bit_cast<ProductAlgorithm>(a) == std::bit_cast<ProductAlgorithm>(b);
}

// `neighbour`: the algorithm of a slightly larger GEMM. For some shapes the library's first
// proposals take several times as long as for their neighbours.
std::vector<cublasLtMatmulAlgo_t> candidates(const LtGemm& gemm,
                                             const std::optional<cublasLtMatmulAlgo_t>& neighbour) {
  std::vector<LtGemm::Proposal> proposals = gemm.propose(kProposals);
  if (gemm.rows() > kSplitRows && proposals.size() > kFirst + kFitting) {
    std::stable_sort(proposals.begin() + kFirst, proposals.end(),
                     [](const auto& a, const auto& b) { return waste(a) < waste(b); });
    proposals.resize(kFirst + kFitting);
  }
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const LtGemm::Proposal& p : proposals) algorithms.push_back(p.algorithm);
  const auto is_neighbour = [&](const auto& algorithm) { return same(algorithm, *neighbour); };
  if (neighbour && std::ranges::none_of(algorithms, is_neighbour) && gemm.works(*neighbour))
    algorithms.push_back(*neighbour);
  return algorithms;
}

}  // namespace

CublasLt::CublasLt(bool one_order) : one_order_(one_order) {
  check_lt(cublasLtCreate(&handle_), "starting");
}
CublasLt::~CublasLt() { cublasLtDestroy(handle_); }

bool CublasLt::takes(const Tensor& out, const Tensor& x, const Linear& w) {
  constexpr uint32_t kAlignment = LtGemm::kAlignment;
  return x.dtype == DType::kBF16 && is_plain(w, DType::kBF16) && w.experts == 0 &&
         is_aligned(out, kAlignment) && is_aligned(x, kAlignment) &&
         is_aligned(w.weight, kAlignment);
}

// The algorithm of the next row count that was measured, this one included.
std::optional<CublasLt::Algorithm> CublasLt::measured(const ProductKey& key) const {
  std::optional<Algorithm> next;
  int64_t next_rows = 0;
  for (const auto& [known, algorithm] : measured_) {
    ProductKey same = known;
    same.rows = key.rows;
    if (same != key || known.rows < key.rows || (next && known.rows > next_rows)) continue;
    next = algorithm;
    next_rows = known.rows;
  }
  return next;
}

std::optional<CublasLt::Algorithm> CublasLt::choose(const ProductKey& key, const LtGemm& gemm) {
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  std::optional<Algorithm>& choice = chosen_[key];
  const auto best = measured(key);
  if (best && gemm.works(*best)) return choice = best;
  const std::vector<LtGemm::Proposal> proposed = gemm.propose(1);
  if (!proposed.empty()) choice = proposed.front().algorithm;
  return choice;
}

bool CublasLt::product(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                       cudaStream_t stream) {
  if (out.rows() == 0) return true;
  const LtGemm whole = gemm(out, x, w);
  const auto algorithm = choose(key_of(out, x), whole);
  return algorithm && whole.run(*algorithm, workspace, stream);
}

// The fastest of the candidates. The first run of an algorithm is not counted, since it includes
// loading its kernel, about a millisecond.
std::optional<CublasLt::Algorithm> CublasLt::fastest(const LtGemm& gemm,
                                                     const std::optional<Algorithm>& neighbour,
                                                     void* workspace, cudaStream_t stream) {
  std::vector<Algorithm> running = candidates(gemm, neighbour);
  for (const Algorithm& algorithm : running) {
    if (loaded_.insert(std::bit_cast<ProductAlgorithm>(algorithm)).second)
      gemm.run(algorithm, workspace, stream);
  }
  std::optional<Algorithm> best;
  float best_us = std::numeric_limits<float>::infinity();
  for (int i = 0; i < (gemm.rows() > kManyRows ? 1 : kRuns); ++i) {
    const std::vector<float> us = timer_.times(gemm, running, workspace, stream);
    std::vector<Algorithm> close;
    for (size_t a = 0; a < us.size(); ++a)
      if (us[a] < best_us) best_us = us[a], best = running[a];
    for (size_t a = 0; a < us.size(); ++a)
      if (us[a] < kClose * best_us) close.push_back(running[a]);
    if (close.size() <= 1) break;
    running = close;
  }
  return best;
}

// Measures the counts below x.rows(), falling, down to the largest that was measured before.
void CublasLt::tune_below(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                          cudaStream_t stream) {
  const ProductKey key = key_of(out, x);
  int64_t from = 0;
  for (const auto& [known, algorithm] : measured_) {
    ProductKey same = known;
    same.rows = key.rows;
    if (same == key && known.rows <= key.rows) from = std::max(from, known.rows);
  }
  std::optional<Algorithm> best = measured(key);
  for (const int64_t rows :
       tuned_counts(std::max(from, kRehearsedRows), key.rows) | std::views::reverse) {
    if (rows == key.rows) continue;
    ProductKey exact = key;
    exact.rows = rows;
    best = fastest(gemm(out.row_range(0, rows), x.row_range(0, rows), w), best, workspace, stream);
    if (!best) break;
    measured_[exact] = *best;
    chosen_.clear();
  }
}

bool CublasLt::try_one(const LtGemm& gemm, LtTrials& trials, void* workspace, cudaStream_t stream) {
  LtTrials::Trial& trial = trials.next();
  loaded_.insert(std::bit_cast<ProductAlgorithm>(trial.algorithm));
  return timer_.run(trial, gemm, workspace, stream);
}

bool CublasLt::tune(const Tensor& out, const Tensor& x, const Linear& w, void* workspace,
                    cudaStream_t stream) {
  const ProductKey key = key_of(out, x);
  tune_below(out, x, w, workspace, stream);
  const auto known = trials_.find(key);
  if (measured_.contains(key) && known == trials_.end())
    return product(out, x, w, workspace, stream);
  const LtGemm whole = gemm(out, x, w);
  LtTrials& trials = known != trials_.end()
                         ? known->second
                         : trials_.emplace(key, LtTrials(whole.propose(kProposals))).first->second;
  if (trials.empty()) return false;
  const int64_t bytes_read = w.weight.elements() * static_cast<int64_t>(bytes(w.weight.dtype));
  bool ran = false;
  do {
    ran |= try_one(whole, trials, workspace, stream);
  } while (bytes_read > kCacheBytes && !trials.each_ran(kFew));
  return ran;
}

void CublasLt::settle() {
  timer_.settle();
  for (const auto& [key, trials] : trials_) {
    if (!trials.empty() && !trials.fastest().us.empty())
      measured_[key] = trials.fastest().algorithm;
  }
  chosen_.clear();
}

TunedProducts CublasLt::tuned() const {
  TunedProducts all = {.library = cublasLtGetVersion(), .capability = capability(), .products = {}};
  for (const auto& [key, algorithm] : measured_)
    all.products.push_back({key, std::bit_cast<ProductAlgorithm>(algorithm)});
  return all;
}

bool CublasLt::adopt(const TunedProducts& tuned) {
  if (tuned.library != cublasLtGetVersion() || tuned.capability != capability()) return false;
  const auto fits = [&](const TunedProduct& p) {
    return !one_order_ || adds_in_one_order(std::bit_cast<cublasLtMatmulAlgo_t>(p.algorithm));
  };
  if (!std::ranges::all_of(tuned.products, fits)) return false;
  for (const auto& [key, algorithm] : tuned.products)
    measured_[key] = std::bit_cast<Algorithm>(algorithm);
  chosen_.clear();
  return true;
}

}  // namespace skiff::cuda
