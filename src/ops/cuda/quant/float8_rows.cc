#include "ops/cuda/quant/float8_rows.h"

#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

// Scales with a stride; what pads their rows is zero.
void bring_scales(float* to, const Tensor& from, const Float8Rows& rows, cudaStream_t stream) {
  const auto pitch = static_cast<size_t>(rows.scale_stride()) * sizeof(float);
  const auto width = static_cast<size_t>(rows.in / Float8Rows::kBlock) * sizeof(float);
  const auto count = static_cast<size_t>(rows.matrices() * rows.scale_rows());
  check(cudaMemsetAsync(to, 0, pitch * count, stream), "clearing scales");
  check(cudaMemcpy2DAsync(to, pitch, from.data, width, width, count, cudaMemcpyDefault, stream),
        "copying scales");
}

}  // namespace

Linear prepare_float8_rows(const Linear& plain, Device device, Buffer* owner, cudaStream_t stream) {
  const Float8Rows rows = float8_rows_of(plain);
  SKIFF_CHECK(plain.weight.contiguous() && plain.scale.contiguous() && !plain.order);
  const Float8Places places = float8_places(rows, bool{plain.bias});
  *owner = Buffer(device, places.end);
  Linear out = {.weight = plain.weight, .format = plain.format, .experts = plain.experts};
  out.weight.data = owner->data();
  out.weight.device = device;
  check(cudaMemcpyAsync(owner->data(), plain.weight.data,
                        static_cast<size_t>(rows.matrices() * rows.out * rows.in),
                        cudaMemcpyDefault, stream),
        "copying a weight");
  out.scale = owner->view(DType::kF32, {rows.matrices() * rows.scale_rows(), rows.scale_stride()},
                          places.scales);
  bring_scales(out.scale.as<float>(), plain.scale, rows, stream);
  if (plain.bias) {
    SKIFF_CHECK(plain.bias.dtype == DType::kF32 && plain.bias.contiguous());
    out.bias = owner->view(DType::kF32, {rows.out}, places.bias);
    check(cudaMemcpyAsync(out.bias.data, plain.bias.data,
                          static_cast<size_t>(rows.out) * sizeof(float), cudaMemcpyDefault, stream),
          "copying a bias");
  }
  check(cudaStreamSynchronize(stream), "preparing a weight");
  return out;
}

}  // namespace skiff::cuda
