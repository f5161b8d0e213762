#include "ops/cuda/quant/float8_channels.h"

#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

void bring(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
        "copying a weight");
}

}  // namespace

Linear prepare_float8_channels(const Linear& plain, Device device, Buffer* owner,
                               cudaStream_t stream) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const Float8Channels channels = float8_channels_of(plain);
  SKIFF_CHECK(plain.weight.contiguous() && plain.scale.contiguous() && !plain.order);
  const Float8Places places = float8_places(channels, bool{plain.bias});
  *owner = Buffer(device, places.end);
  Linear out = {.weight = plain.weight, .format = plain.format};
  out.weight.data = owner->data();
  out.weight.device = device;
  bring(owner->data(), plain.weight.data, channels.out * channels.in, stream);
  out.scale = owner->view(DType::kF32, {channels.scales(), 1}, places.scales);
  check(cudaMemsetAsync(out.scale.data, 0, static_cast<size_t>(channels.scales() * kFloat), stream),
        "clearing scales");
  bring(out.scale.data, plain.scale.data, channels.out * kFloat, stream);
  if (plain.bias) {
    SKIFF_CHECK(plain.bias.dtype == DType::kF32 && plain.bias.contiguous());
    out.bias = owner->view(DType::kF32, {channels.out}, places.bias);
    bring(out.bias.data, plain.bias.data, channels.out * kFloat, stream);
  }
  check(cudaStreamSynchronize(stream), "preparing a weight");
  return out;
}

}  // namespace skiff::cuda
