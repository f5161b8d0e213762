#include "ops/cuda/linear/lt_timer.h"

#include <algorithm>
#include <limits>

#include "ops/cuda/check.h"
#include "ops/cuda/linear/read_memory.h"

namespace skiff::cuda {
namespace {

constexpr size_t kMost = 64;                      // runs in flight
constexpr size_t kSmallInput = size_t{16} << 20;  // a larger x does not stay in the L2 as a whole
// An algorithm that is kFarBehind times slower than the best runs only when the others are kEnough
// runs ahead of it.
constexpr int kEnough = 8;
constexpr float kFarBehind = 1.15f;
constexpr float kNever = std::numeric_limits<float>::infinity();

}  // namespace

LtTrials::LtTrials(const std::vector<LtGemm::Proposal>& proposals) {
  for (const LtGemm::Proposal& p : proposals)
    trials_.push_back({.algorithm = p.algorithm, .us = {}});
}

float LtTrials::Trial::typical() const {
  if (us.empty()) return kNever;
  std::vector<float> sorted = us;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

const LtTrials::Trial& LtTrials::fastest() const {
  return *std::ranges::min_element(trials_, {}, &Trial::typical);
}

LtTrials::Trial& LtTrials::next() {
  const float limit = kFarBehind * fastest().typical();
  return *std::ranges::min_element(trials_, {}, [&](const Trial& t) {
    return !t.us.empty() && t.typical() > limit ? kEnough + t.runs : t.runs;
  });
}

bool LtTrials::each_ran(int runs) const {
  return std::ranges::all_of(trials_, [&](const Trial& t) { return t.runs >= runs; });
}

LtTimer::LtTimer() : free_(kMost) {
  for (auto& [begin, end] : free_) {
    check(cudaEventCreate(&begin), "making an event");
    check(cudaEventCreate(&end), "making an event");
  }
}

LtTimer::~LtTimer() {
  for (const Pending& p : pending_) free_.push_back(p.interval);
  for (const auto& [begin, end] : free_) {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
}

float LtTimer::us(const Interval& interval) {
  float ms = 0;
  check(cudaEventSynchronize(interval.end), "tuning products");
  check(cudaEventElapsedTime(&ms, interval.begin, interval.end), "tuning products");
  return 1000 * ms;
}

std::vector<float> LtTimer::times(const LtGemm& gemm,
                                  std::span<const cublasLtMatmulAlgo_t> algorithms, void* workspace,
                                  cudaStream_t stream) {
  settle();
  SKIFF_CHECK(algorithms.size() <= free_.size());
  const Tensor& x = gemm.x();
  const auto x_bytes = static_cast<size_t>((x.rows() - 1) * x.row_stride + x.cols()) * 2;
  std::vector<char> ran(algorithms.size());
  for (size_t i = 0; i < algorithms.size(); ++i) {
    read_memory(workspace, LtGemm::kWorkspaceBytes, stream);
    if (x_bytes <= kSmallInput) read_memory(x.data, x_bytes, stream);
    check(cudaEventRecord(free_[i].begin, stream), "tuning products");
    ran[i] = gemm.run(algorithms[i], workspace, stream);
    check(cudaEventRecord(free_[i].end, stream), "tuning products");
  }
  std::vector<float> all;
  for (size_t i = 0; i < algorithms.size(); ++i) all.push_back(ran[i] ? us(free_[i]) : kNever);
  return all;
}

bool LtTimer::run(LtTrials::Trial& trial, const LtGemm& gemm, void* workspace,
                  cudaStream_t stream) {
  if (free_.empty()) collect_oldest();
  const Interval interval = free_.back();
  check(cudaEventRecord(interval.begin, stream), "tuning products");
  const bool ran = gemm.run(trial.algorithm, workspace, stream);
  check(cudaEventRecord(interval.end, stream), "tuning products");
  if (!ran) {
    trial.runs = std::numeric_limits<int>::max() / 2;
  } else if (trial.runs++ > 0) {  // the first run may include loading the kernel
    free_.pop_back();
    pending_.push_back({&trial, interval});
  }
  return ran;
}

void LtTimer::collect_oldest() {
  const Pending oldest = pending_.front();
  pending_.pop_front();
  free_.push_back(oldest.interval);
  oldest.trial->us.push_back(us(oldest.interval));
}

void LtTimer::settle() {
  while (!pending_.empty()) collect_oldest();
}

}  // namespace skiff::cuda
