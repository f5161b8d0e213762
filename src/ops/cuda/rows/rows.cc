#include "ops/cuda/rows/rows.h"

#include <limits>

#include "ops/cuda/check.h"
#include "ops/cuda/rows/kernels.h"

namespace skiff::cuda {
namespace {

Float float_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Float::kF32;
    case DType::kF16:
      return Float::kF16;
    case DType::kBF16:
      return Float::kBF16;
    default:
      SKIFF_CHECK(false, "no floats in {}", name(dtype));
  }
}

Matrix matrix(const Tensor& t) {
  if (!t) return {};
  return {.data = t.data, .stride = t.row_stride, .type = float_of(t.dtype)};
}

int as_int(int64_t n) {
  SKIFF_CHECK(n <= std::numeric_limits<int>::max(), "a tensor with {} rows or columns", n);
  return static_cast<int>(n);
}
int rows_of(const Tensor& t) { return as_int(t.rows()); }
int cols_of(const Tensor& t) { return as_int(t.cols()); }

}  // namespace

void copy_rows(Tensor out, Tensor x, Tensor ids, cudaStream_t stream) {
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  SKIFF_CHECK(out.dtype != DType::kF16, "nothing computes in f16");
  if (out.rows() == 0) return;
  start_copy_rows(matrix(out), matrix(x), ids ? ids.as<int32_t>() : nullptr, rows_of(out),
                  cols_of(out), stream);
}

void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm, cudaStream_t stream) {
  SKIFF_CHECK_EQ(residual.cols(), out.cols());
  SKIFF_CHECK_EQ(norm.weight.elements(), out.cols());
  SKIFF_CHECK(residual.dtype == DType::kF32, "a residual stream of {}", name(residual.dtype));
  if (out.rows() == 0) return;
  start_add_norm(matrix(out), matrix(residual), matrix(delta), norm.weight.as<float>(), norm.eps,
                 rows_of(out), cols_of(out), stream);
}

// The kernel's own variables take less than 1 KB.
int64_t max_norm_cols() {
  const int64_t shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return (shared - 1024) / static_cast<int64_t>(sizeof(float));
}

void add(Tensor out, Tensor x, cudaStream_t stream) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  if (out.rows() == 0) return;
  start_add(matrix(out), matrix(x), rows_of(out), cols_of(out), stream);
}

void relu(Tensor x, cudaStream_t stream) {
  if (x.rows() == 0) return;
  start_relu(matrix(x), rows_of(x), cols_of(x), stream);
}

void gated_act(Tensor out, Tensor gate_up, Act act, cudaStream_t stream) {
  SKIFF_CHECK_EQ(2 * out.cols(), gate_up.cols());
  if (out.rows() == 0) return;
  start_gated_act(matrix(out), matrix(gate_up), act == Act::kGelu, rows_of(out), cols_of(out),
                  stream);
}

void load_tokens(Tensor tokens, Tensor last, cudaStream_t stream) {
  if (tokens.rows() == 0) return;
  start_load_tokens(tokens.as<int32_t>(), last.as<int32_t>(), rows_of(tokens), stream);
}

void store_tokens(Tensor last, Tensor slots, Tensor tokens, cudaStream_t stream) {
  SKIFF_CHECK_EQ(slots.rows(), tokens.rows());
  if (tokens.rows() == 0) return;
  start_store_tokens(last.as<int32_t>(), slots.as<int32_t>(), tokens.as<int32_t>(), rows_of(tokens),
                     stream);
}

}  // namespace skiff::cuda
