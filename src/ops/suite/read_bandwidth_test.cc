#include "ops/read_bandwidth.h"

#include <gtest/gtest.h>

#include "base/load_error.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

// 10 GB/s is less than any device with CUDA reaches, 100 TB/s more.
TEST(ReadBandwidth, IsOfAPossibleSize) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  const double bandwidth = device_read_bandwidth({Device::kCuda, 0});
  EXPECT_GT(bandwidth, 1e10);
  EXPECT_LT(bandwidth, 1e14);
}

TEST(ReadBandwidth, NeedsItsDevice) {
  EXPECT_THROW(device_read_bandwidth({Device::kCuda, static_cast<int8_t>(num_cuda_devices())}),
               LoadError);
}

}  // namespace
}  // namespace skiff::suite
