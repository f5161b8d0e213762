#include "ops/read_bandwidth.h"

#include <algorithm>

#include "base/load_error.h"
#include "ops/cuda/check.h"
#include "ops/cuda/stream.h"
#include "ops/cuda/sum_words.h"
#include "tensor/device_memory.h"
#include "tensor/memory.h"

namespace skiff {
namespace {

constexpr size_t kGiB = size_t{1} << 30;
constexpr int kPasses = 10;

double read_bandwidth(Device device, size_t size) {
  cuda::Stream stream(device.index);
  const Buffer data(device, size), sum(device, sizeof(uint32_t));
  cuda::check(cudaMemsetAsync(data.data(), 1, size, stream.get()), "filling memory");
  const auto expected = static_cast<uint32_t>(size / sizeof(uint32_t) * 0x01010101u);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    cuda::check(cudaMemsetAsync(sum.data(), 0, sizeof(uint32_t), stream.get()), "clearing a sum");
    const uint64_t begin = stream.stamp();
    cuda::sum_words(reinterpret_cast<uint32_t*>(sum.data()), data.data(), size, stream.get());
    const uint64_t end = stream.stamp();
    stream.wait(stream.mark());
    uint32_t found = 0;
    cuda::check(cudaMemcpy(&found, sum.data(), sizeof found, cudaMemcpyDeviceToHost),
                "reading a sum");
    if (found != expected)
      fail_load("the device added up {} bytes to {} instead of {}", size, found, expected);
    best = std::max(best, static_cast<double>(size) / stream.seconds_between(begin, end));
  }
  return best;
}

}  // namespace

double device_read_bandwidth(Device device) {
  if (device.index >= num_cuda_devices()) fail_load("there is no CUDA device {}", device.index);
  cuda::check(cudaSetDevice(device.index), "choosing a device");
  const bool roomy = device_memory(device).free > 5 * kGiB;
  return read_bandwidth(device, (roomy ? 4 : 1) * kGiB);
}

}  // namespace skiff
