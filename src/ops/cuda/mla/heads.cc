#include "ops/cuda/mla/heads.h"

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/mla/lt_batch.h"

namespace skiff::cuda {
namespace {

// The operands as cuBLASLt sees them, column-major: its A is w and its B is x, both stored with
// `in` running fastest.
LtMatrix rows_as_columns(const Tensor& t, int64_t heads) {
  return {t.data, t.cols(), t.rows() / heads, heads * t.row_stride, t.row_stride};
}

}  // namespace

HeadProducts::HeadProducts(std::byte* scratch, bool one_order)
    : scratch_(scratch), one_order_(one_order) {}

HeadProducts::~HeadProducts() {
  if (handle_) cublasLtDestroy(handle_);
}

bool HeadProducts::by_library(const Tensor& out, const Tensor& x, const Linear& w,
                              cudaStream_t stream) {
  if (!handle_) check_lt(cublasLtCreate(&handle_), "starting");
  const int64_t heads = w.experts, in = x.cols();
  const LtMatrix weights = {w.weight.data, in, out.cols(), in, in * out.cols()};
  const LtBatch batch(rows_as_columns(out, heads), weights, true, rows_as_columns(x, heads), heads);
  const Key key = {x.rows(), w.experts, x.cols(), out.cols(), x.row_stride, out.row_stride};
  auto known = algorithms_.find(key);
  if (known == algorithms_.end())
    known = algorithms_.emplace(key, batch.propose(handle_, kScratchBytes)).first;
  return known->second && batch.run(handle_, *known->second, scratch_, kScratchBytes, stream);
}

void HeadProducts::product(const Tensor& out, const Tensor& x, const Linear& w,
                           cudaStream_t stream) {
  SKIFF_CHECK(w.experts > 0 && !w.format.quantized(), "heads_linear takes a stack of plain values");
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(x.rows() % w.experts, 0);
  SKIFF_CHECK_EQ(out.cols(), features(w));
  SKIFF_CHECK_EQ(x.cols(), inputs(w));
  SKIFF_CHECK(out.dtype == x.dtype && w.weight.dtype == x.dtype);
  if (x.rows() == 0) return;
  if (!one_order_ && heads_by_rows_takes(out, x, w)) return heads_by_rows(out, x, w, stream);
  if (!one_order_ && heads_at_once_takes(out, x, w)) return heads_at_once(out, x, w, stream);
  if (!heads_by_tiles_takes(out, x, w)) return heads_by_elements(out, x, w, stream);
  const bool library = !one_order_ && !is_tiles(w) && is_aligned(out) && out.cols() % 8 == 0;
  if (library && by_library(out, x, w, stream)) return;
  heads_by_tiles(out, x, w, stream);
}

}  // namespace skiff::cuda
