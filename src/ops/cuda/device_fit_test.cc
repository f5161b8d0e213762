#include "ops/cuda/device_fit.h"

#include <gtest/gtest.h>

namespace skiff::cuda {
namespace {

DeviceFacts h200() {
  return {.index = 1,
          .name = "NVIDIA H200",
          .major = 9,
          .max_block_shared = 227 << 10,
          .has_kernels = true};
}

TEST(DeviceFit, TakesWhatItWasBuiltFor) {
  EXPECT_EQ(refusal(h200(), "90a"), "");
  EXPECT_TRUE(runs_hopper_kernels(h200()));
  EXPECT_TRUE(may_gather(h200()));
}

TEST(DeviceFit, RefusesADeviceWithoutKernelsInALine) {
  DeviceFacts a100{.index = 0,
                   .name = "NVIDIA A100",
                   .major = 8,
                   .max_block_shared = 163 << 10,
                   .has_kernels = false};
  EXPECT_EQ(refusal(a100, "90a"),
            "CUDA device 0 (NVIDIA A100, compute capability 8.0) cannot run this build, whose "
            "kernels are compiled for 90a: build with -DCMAKE_CUDA_ARCHITECTURES=80, or name "
            "another --device");
  a100.has_kernels = true;
  EXPECT_EQ(refusal(a100, "80"), "");
  EXPECT_FALSE(runs_hopper_kernels(a100));
  EXPECT_FALSE(may_gather(a100));
}

TEST(DeviceFit, RefusesADeviceThatIsTooOld) {
  const DeviceFacts v100{.name = "Tesla V100", .major = 7, .has_kernels = true};
  EXPECT_NE(refusal(v100, "70").find("too old: 8.0 or later"), std::string::npos);
}

// Capability 12.0 has tensor cores and TMA of its own, and 99 KiB of shared memory for a block.
TEST(DeviceFit, ServesOtherDevicesByPortableKernels) {
  DeviceFacts blackwell = h200();
  blackwell.major = 12, blackwell.max_block_shared = 99 << 10;
  EXPECT_EQ(refusal(blackwell, "120"), "");
  EXPECT_FALSE(runs_hopper_kernels(blackwell));
  DeviceFacts small = h200();
  small.max_block_shared = 99 << 10;
  EXPECT_FALSE(runs_hopper_kernels(small));
}

TEST(DeviceFit, DoesNotGatherUnderMps) {
  DeviceFacts shared = h200();
  shared.mps = true;
  EXPECT_TRUE(runs_hopper_kernels(shared));
  EXPECT_FALSE(may_gather(shared));
}

}  // namespace
}  // namespace skiff::cuda
