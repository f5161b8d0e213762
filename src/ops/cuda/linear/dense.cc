#include "ops/cuda/linear/dense.h"

#include "ops/cuda/linear/add_bias.h"
#include "ops/cuda/linear/tiled.h"

namespace skiff::cuda {

size_t DenseProducts::scratch_bytes(int64_t max_rows, int64_t max_biased_out) {
  return CublasLt::kWorkspaceBytes + static_cast<size_t>(max_rows * max_biased_out) * sizeof(float);
}

// Where the library's sums go: they meet the bias in f32, before anything is rounded.
Tensor DenseProducts::before_bias(const Tensor& out, const Linear& w) const {
  if (!w.bias || out.dtype == DType::kF32) return out;
  SKIFF_CHECK(CublasLt::kWorkspaceBytes + static_cast<size_t>(out.elements()) * sizeof(float) <=
                  bytes_,
              "scratch of {} bytes is too small for the sums of {} x {} outputs", bytes_,
              out.rows(), out.cols());
  Tensor sums = out;
  sums.data = static_cast<char*>(scratch_) + CublasLt::kWorkspaceBytes;
  sums.dtype = DType::kF32;
  sums.row_stride = out.cols();
  return sums;
}

void DenseProducts::product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  SKIFF_CHECK(w.scheme == Scheme::kPlain && w.weight.contiguous());
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), w.weight.rows());
  SKIFF_CHECK_EQ(x.cols(), w.weight.cols());
  if (out.rows() == 0) return;
  const Tensor sums = before_bias(out, w);
  if (CublasLt::takes(sums, x, w.weight) && library_.product(sums, x, w.weight, scratch_, stream)) {
    if (w.bias) add_bias(out, sums, w.bias, stream);
    return;
  }
  tiled_product(out, x, w.weight, w.bias, stream);
}

void DenseProducts::tune(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  const Tensor sums = before_bias(out, w);
  if (out.rows() > 0 && CublasLt::takes(sums, x, w.weight))
    library_.tune(sums, x, w.weight, scratch_, stream);
}

}  // namespace skiff::cuda
