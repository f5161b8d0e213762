#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/processors.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/rows.h"

namespace skiff {

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
  return std::make_unique<cpu::CpuOps>(options);
}

std::unique_ptr<Ops> make_cpu_ops(int threads) {
  return make_cpu_ops(CpuOptions{.threads = threads, .isa = {}});
}

namespace cpu {
namespace {

// Returns a row of any float dtype as f32: in place, or copied to `scratch`.
const float* wide(const Kernels& k, const Tensor& t, int64_t r, float* scratch) {
  if (t.dtype == DType::kF32) return t.row<float>(r);
  copy_row(k, scratch, DType::kF32, row_data(t, r), t.dtype, t.cols());
  return scratch;
}

}  // namespace

CpuOps::CpuOps(const CpuOptions& options)
    : kernels_(kernels_for(options.isa.value_or(best_isa()))),
      pool_(options.threads > 0 ? options.threads : usable_processors()),
      thread_scratch_(static_cast<size_t>(pool_.threads())) {}

std::string CpuOps::arithmetic() const { return fmt::format("cpu {}", kernels_.name); }

void CpuOps::begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) {
  HostOps::begin_step(batch, arrivals);
  for (RopeTable& table : rope_tables_) table.valid = false;
}

void CpuOps::embed(Tensor out, Tensor table, Tensor ids) { gather_rows(out, table, ids); }

void CpuOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  SKIFF_CHECK_EQ(out.rows(), rows.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  parallel_rows(out.rows(), out.cols(), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t from = rows.as<int32_t>()[r];
      SKIFF_CHECK(from >= 0 && from < x.rows(), "row {} of {}", from, x.rows());
      copy_row(kernels_, row_data(out, r), out.dtype, row_data(x, from), x.dtype, out.cols());
    }
  });
}

void CpuOps::add(Tensor out, Tensor x) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  const int64_t n = out.cols();
  parallel_rows(out.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* sum = thread_scratch_[static_cast<size_t>(thread)].take<float>(2 * n);
    for (int64_t r = begin; r < end; ++r) {
      float* to = out.dtype == DType::kF32 ? out.row<float>(r) : sum;
      if (to == sum) copy_row(kernels_, sum, DType::kF32, row_data(out, r), out.dtype, n);
      kernels_.add(to, wide(kernels_, x, r, sum + n), n);
      if (to == sum) copy_row(kernels_, row_data(out, r), out.dtype, sum, DType::kF32, n);
    }
  });
}

void CpuOps::relu(Tensor x) {
  const int64_t n = x.cols();
  parallel_rows(x.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = thread_scratch_[static_cast<size_t>(thread)].take<float>(n);
    for (int64_t r = begin; r < end; ++r) {
      float* row = x.dtype == DType::kF32 ? x.row<float>(r) : scratch;
      if (row == scratch) copy_row(kernels_, row, DType::kF32, row_data(x, r), x.dtype, n);
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] < 0 ? 0 : row[i];
      if (row == scratch) copy_row(kernels_, row_data(x, r), x.dtype, row, DType::kF32, n);
    }
  });
}

void CpuOps::add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) {
  const int64_t n = out.cols();
  SKIFF_CHECK_EQ(residual.cols(), n);
  SKIFF_CHECK_EQ(norm.weight.elements(), n);
  const float* weight = norm.weight.as<float>();
  parallel_rows(out.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = thread_scratch_[static_cast<size_t>(thread)].take<float>(n);
    for (int64_t r = begin; r < end; ++r) {
      float* x = residual.row<float>(r);
      if (delta) kernels_.add(x, wide(kernels_, delta, r, scratch), n);
      const float mean = kernels_.sum_squares(x, n) / static_cast<float>(n);
      float* y = out.dtype == DType::kF32 ? out.row<float>(r) : scratch;
      kernels_.scale(y, x, 1 / std::sqrt(mean + norm.eps), weight, n);
      if (y == scratch) copy_row(kernels_, row_data(out, r), out.dtype, y, DType::kF32, n);
    }
  });
}

void CpuOps::activate(float* out, const float* gate, const float* up, int64_t n, Act act) const {
  if (act == Act::kSilu) return kernels_.silu_mul(out, gate, up, n);
  SKIFF_CHECK(act == Act::kGelu);
  constexpr float kRootHalf = 1 / std::numbers::sqrt2_v<float>;
  for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * gate[i] * std::erfc(-gate[i] * kRootHalf) * up[i];
}

void CpuOps::gated_act(Tensor out, Tensor gate_up, Act act) {
  const int64_t n = out.cols();
  SKIFF_CHECK_EQ(gate_up.cols(), 2 * n);
  parallel_rows(out.rows(), n, [&](int64_t begin, int64_t end, int thread) {
    float* scratch = thread_scratch_[static_cast<size_t>(thread)].take<float>(3 * n);
    for (int64_t r = begin; r < end; ++r) {
      const float* both = wide(kernels_, gate_up, r, scratch + n);
      float* y = out.dtype == DType::kF32 ? out.row<float>(r) : scratch;
      activate(y, both, both + n, n, act);
      if (y == scratch) copy_row(kernels_, row_data(out, r), out.dtype, y, DType::kF32, n);
    }
  });
}

}  // namespace cpu
}  // namespace skiff
