#include "rows_device.h"

#include "product_check.cuh"

namespace skiff::cuda::bench {
namespace {

__global__ void spin_kernel(int64_t cycles) {
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

}  // namespace

void fill_weights(void* weights, size_t bytes) {
  fill_kernel<<<2048, 256>>>(weights, false, static_cast<int64_t>(bytes / 2), 11, 0.5f);
  check(cudaDeviceSynchronize(), "filling");
}
Tensor random_rows(int64_t rows, int64_t cols) { return random(DType::kBF16, {rows, cols}, 7); }
Tensor outputs(DType dtype, int64_t rows, int64_t cols) { return make(dtype, {rows, cols}); }
void spin(int64_t cycles, cudaStream_t stream) { spin_kernel<<<1, 1, 0, stream>>>(cycles); }
double worst_error(const Tensor& out, const Tensor& x, const Linear& w) {
  return worst_of(out, x, w, false, 1 << 11);
}

}  // namespace skiff::cuda::bench
