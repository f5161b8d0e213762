#include "ops/cuda/tensor_copies.h"

#include "base/check.h"
#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

size_t row_bytes(const Tensor& t) { return static_cast<size_t>(t.cols()) * bytes(t.dtype); }

size_t pitch(const Tensor& t) { return static_cast<size_t>(t.row_stride) * bytes(t.dtype); }

// Returns whether a kernel may write x to `out` directly. Sampled tokens go to the host that way;
// larger tensors are copied.
bool is_small_and_pinned(const Tensor& out, const Tensor& x) {
  constexpr size_t kSmall = 16384;
  if (out.device != Device{} || x.device == Device{} || bytes(x.dtype) % 4 != 0 ||
      row_bytes(x) * static_cast<size_t>(x.rows()) > kSmall)
    return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, out.data), "asking what memory is");
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace

SmallCopy small_copy(const Tensor& to, const Tensor& from) {
  SKIFF_CHECK(to.dtype == from.dtype && bytes(to.dtype) % 4 == 0);
  SKIFF_CHECK_EQ(to.rows(), from.rows());
  SKIFF_CHECK_EQ(to.cols(), from.cols());
  return {.to = to.data,
          .from = from.data,
          .rows = from.rows(),
          .row_bytes = static_cast<int64_t>(row_bytes(from)),
          .to_pitch = static_cast<int64_t>(pitch(to)),
          .from_pitch = static_cast<int64_t>(pitch(from))};
}

void copy_plain(const Tensor& out, const Tensor& x, cudaStream_t stream) {
  if (out.elements() == 0) return;
  if (is_small_and_pinned(out, x)) return fetch(small_copy(out, x), stream);
  if (out.contiguous() && x.contiguous()) {
    check(cudaMemcpyAsync(out.data, x.data, row_bytes(x) * static_cast<size_t>(x.rows()),
                          cudaMemcpyDefault, stream),
          "copying");
    return;
  }
  check(cudaMemcpy2DAsync(out.data, pitch(out), x.data, pitch(x), row_bytes(x),
                          static_cast<size_t>(x.rows()), cudaMemcpyDefault, stream),
        "copying rows");
}

}  // namespace skiff::cuda
