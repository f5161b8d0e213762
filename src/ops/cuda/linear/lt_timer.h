// ops/cuda/linear/lt_timer.h -- times of cuBLASLt's algorithms on the device.
#pragma once
#include <cuda_runtime.h>

#include <deque>
#include <span>
#include <vector>

#include "ops/cuda/linear/lt_gemm.h"

namespace skiff::cuda {

// Alternatives for one GEMM, and the times that they have taken.
class LtTrials {
 public:
  explicit LtTrials(const std::vector<LtGemm::Proposal>& proposals);

  struct Trial {
    cublasLtMatmulAlgo_t algorithm;
    int runs = 0;           // runs that were started
    std::vector<float> us;  // times of the runs that have ended, without the first
    float typical() const;  // the median; infinity where nothing was measured
  };
  bool empty() const { return trials_.empty(); }
  // The trial with the fewest runs; one that is much slower than the fastest runs only when the
  // others are far ahead of it.
  Trial& next();
  const Trial& fastest() const;
  bool each_ran(int runs) const;

 private:
  std::vector<Trial> trials_;  // their addresses do not change
};

class LtTimer {
 public:
  LtTimer();
  ~LtTimer();
  LtTimer(const LtTimer&) = delete;
  LtTimer& operator=(const LtTimer&) = delete;

  // Runs each algorithm once, waits, and returns the times in microseconds; infinity where an
  // algorithm failed. Caches are before each as a step leaves them: x in the L2, and weights in
  // memory. Kernels that run for the first time are loaded within their time.
  std::vector<float> times(const LtGemm& gemm, std::span<const cublasLtMatmulAlgo_t> algorithms,
                           void* workspace, cudaStream_t stream);

  // Starts a run of the trial, with caches as they are. Its time is recorded by settle() at the
  // latest; until then the trial must live. Returns whether the algorithm ran.
  bool run(LtTrials::Trial& trial, const LtGemm& gemm, void* workspace, cudaStream_t stream);
  void settle();

 private:
  struct Interval {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  struct Pending {
    LtTrials::Trial* trial;
    Interval interval;
  };
  static float us(const Interval& interval);
  void collect_oldest();

  std::vector<Interval> free_;
  std::deque<Pending> pending_;
};

}  // namespace skiff::cuda
