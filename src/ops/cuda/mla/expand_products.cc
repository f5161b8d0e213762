#include "ops/cuda/mla/expand_products.h"

#include "base/check.h"
#include "ops/cuda/linear/lt_gemm.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/mla/heads.h"
#include "ops/cuda/mla/lt_batch.h"

namespace skiff::cuda {

ExpandProducts::~ExpandProducts() {
  if (handle_) cublasLtDestroy(handle_);
}

void ExpandProducts::keys(const Tensor& out, int64_t first, const Tensor& latents,
                          const Linear& absorb, int first_head, cudaStream_t stream) {
  SKIFF_CHECK_EQ(features(absorb), latents.cols());
  SKIFF_CHECK_EQ(inputs(absorb), out.dim[2]);
  product(out, first, latents, absorb, first_head, false, stream);
}

void ExpandProducts::values(const Tensor& out, int64_t first, const Tensor& latents,
                            const Linear& value, int first_head, cudaStream_t stream) {
  SKIFF_CHECK_EQ(features(value), out.dim[2]);
  SKIFF_CHECK_EQ(inputs(value), latents.cols());
  product(out, first, latents, value, first_head, true, stream);
}

// Column-major, `out` of a head is [width, positions] and `latents` [rank, rows]; absorb[h] is
// [width, rank] and value[h] [rank, width].
void ExpandProducts::product(const Tensor& out, int64_t first, const Tensor& latents,
                             const Linear& w, int first_head, bool values, cudaStream_t stream) {
  const int64_t heads = out.dim[0], positions = out.dim[1], width = out.dim[2];
  const int64_t rows = latents.rows(), rank = latents.cols();
  SKIFF_CHECK(is_plain(w, DType::kBF16) && first + rows <= positions &&
              first_head + heads <= w.experts);
  const auto at = [](const Tensor& t, int64_t element) {
    return static_cast<std::byte*>(t.data) + element * 2;
  };
  const LtMatrix weights = {.data = at(w.weight, first_head * rank * width),
                            .rows = values ? rank : width,
                            .cols = values ? width : rank,
                            .stride = values ? rank : width,
                            .head_stride = rank * width};
  if (!handle_) check_lt(cublasLtCreate(&handle_), "starting");
  const LtBatch batch({at(out, first * width), width, rows, width, positions * width}, weights,
                      values, {latents.data, rank, rows, latents.row_stride, 0}, heads);
  const Key key = {rows, heads, values};
  auto known = algorithms_.find(key);
  if (known == algorithms_.end()) {
    const auto algorithm = batch.propose(handle_, HeadProducts::kScratchBytes);
    SKIFF_CHECK(algorithm, "cuBLASLt has no algorithm for {} heads of {} positions", heads, rows);
    known = algorithms_.emplace(key, *algorithm).first;
  }
  SKIFF_CHECK(batch.run(handle_, known->second, scratch_, HeadProducts::kScratchBytes, stream),
              "cuBLASLt refuses {} heads of {} positions", heads, rows);
}

}  // namespace skiff::cuda
