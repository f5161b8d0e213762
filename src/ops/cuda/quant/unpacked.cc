#include "ops/cuda/quant/unpacked.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cuda/align.h"
#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/unpack.h"

namespace skiff::cuda {
namespace {

constexpr size_t kWorkspace = LtGemm::kScaledWorkspaceBytes;  // a part of the scratch
constexpr int64_t kBlock = 128;
// How many proposals are measured, and how often.
constexpr int kProposals = 8, kRuns = 3;

constexpr int64_t up(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// The rows of a weight that are unpacked at a time: equal parts that fit the scratch.
int64_t rows_at_once(int64_t rows, int64_t columns) {
  const auto room = static_cast<int64_t>(UnpackedProducts::kScratchBytes - kWorkspace);
  const UnpackedRows one = {.rows = kBlock, .columns = columns};
  const auto of_block = static_cast<int64_t>(one.element_bytes() + one.scale_bytes() + 256);
  const int64_t most = room / of_block * kBlock;
  SKIFF_CHECK(most > 0, "rows of {} weights", columns);
  const int64_t parts = (up(rows) + most - 1) / most;
  return up((rows + parts - 1) / parts);
}

Tensor columns_of(const Tensor& out, int64_t first, int64_t count) {
  Tensor part = out;
  part.data = static_cast<std::byte*>(out.data) + first * static_cast<int64_t>(bytes(out.dtype));
  part.dim[1] = count;
  return part;
}

}  // namespace

UnpackedProducts::UnpackedProducts() { check_lt(cublasLtCreate(&handle_), "starting"); }
UnpackedProducts::~UnpackedProducts() { cublasLtDestroy(handle_); }

bool UnpackedProducts::takes(const Tensor& out, const Tensor& x, const Linear& w) {
  return (unpacks(w) || is_float8_rows(w)) && !w.bias && is_aligned(out) && x.rows() >= kRowStep &&
         (out.dtype == DType::kBF16 || out.dtype == DType::kF32);
}

// The algorithm of the next row count that was measured, this one included, else what cuBLASLt
// proposes first.
std::optional<UnpackedProducts::Algorithm> UnpackedProducts::choose(const ProductKey& key,
                                                                    const LtGemm& gemm) {
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  std::optional<Algorithm>& choice = chosen_[key];
  int64_t next = 0;
  for (const auto& [other, algorithm] : measured_) {
    ProductKey same = other;
    same.rows = key.rows;
    if (same != key || other.rows < key.rows || (next > 0 && other.rows > next)) continue;
    if (gemm.works(algorithm)) choice = algorithm, next = other.rows;
  }
  if (choice) return choice;
  const std::vector<LtGemm::Proposal> proposed = gemm.propose(1);
  if (!proposed.empty()) choice = proposed.front().algorithm;
  return choice;
}

bool UnpackedProducts::product(const Tensor& out, const MetRows& rows, const Linear& w,
                               void* scratch, cudaStream_t stream) {
  SKIFF_CHECK_EQ(rows.chunk_stride, out.rows());
  if (!is_float8_rows(w)) return unpacked_product(out, rows, w, scratch, stream);
  const LtGemm gemm(handle_, out, rows.x, w.weight,
                    BlockScales{w.scale.as<float>(), rows.chunk_scales});
  const auto algorithm = choose(key_of(out, rows.x), gemm);
  return algorithm && gemm.run(*algorithm, scratch, stream);
}

void UnpackedProducts::tune(const Tensor& out, const MetRows& rows, const Linear& w, void* scratch,
                            cudaStream_t stream) {
  const ProductKey key = key_of(out, rows.x);
  if (!is_float8_rows(w) || measured_.contains(key)) return;
  const LtGemm gemm(handle_, out, rows.x, w.weight,
                    BlockScales{w.scale.as<float>(), rows.chunk_scales});
  std::vector<Algorithm> algorithms;
  for (const LtGemm::Proposal& p : gemm.propose(kProposals)) algorithms.push_back(p.algorithm);
  if (algorithms.empty()) return;
  std::vector<float> least(algorithms.size(), std::numeric_limits<float>::infinity());
  for (int run = 0; run < kRuns; ++run) {
    const std::vector<float> us = timer_.times(gemm, algorithms, scratch, stream);
    for (size_t i = 0; i < us.size(); ++i) least[i] = std::min(least[i], us[i]);
  }
  const auto best = std::ranges::min_element(least);
  if (!std::isfinite(*best)) return;
  measured_[key] = algorithms[static_cast<size_t>(best - least.begin())];
  chosen_.clear();
}

bool UnpackedProducts::unpacked_product(const Tensor& out, const MetRows& rows, const Linear& w,
                                        void* scratch, cudaStream_t stream) {
  const int64_t columns = rows.x.cols(), all = features(w), most = rows_at_once(all, columns);
  auto* workspace = static_cast<std::byte*>(scratch);
  auto* scales = reinterpret_cast<float*>(workspace + kWorkspace);
  for (int64_t first = 0; first < all; first += most) {
    const int64_t count = std::min(most, all - first);
    const UnpackedRows part = {.first = first, .rows = up(count), .columns = columns};
    Tensor weight = w.weight;
    weight.data = workspace + kWorkspace + (part.scale_bytes() + 255) / 256 * 256;
    weight.dim = {count, columns, 1, 1};
    weight.row_stride = columns;
    const Tensor to = columns_of(out, first, count);
    const LtGemm gemm(handle_, to, rows.x, weight, BlockScales{scales, rows.chunk_scales});
    const auto algorithm = choose(key_of(to, rows.x), gemm);
    if (!algorithm) {
      SKIFF_CHECK_EQ(first, 0);
      return false;
    }
    unpack(weight.data, scales, w, part, stream);
    if (gemm.run(*algorithm, workspace, stream)) continue;
    SKIFF_CHECK_EQ(first, 0);
    return false;
  }
  return true;
}

}  // namespace skiff::cuda
