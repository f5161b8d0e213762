// ops/cuda/device_fit.h -- what a device must have to be used by this build, and which kernels fit
// on it. Pure functions without CUDA; device_facts.h asks the driver.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace skiff::cuda {

struct DeviceFacts {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;      // compute capability
  int64_t max_block_shared = 0;  // bytes of shared memory that a block may opt in to
  bool has_kernels = false;      // this build has machine code or PTX that the device can run
  bool mps = false;              // other processes' kernels run beside ours (CUDA MPS)
};

// Why this build cannot compute on the device, in one line that says what to do; empty where it
// can. `architectures`: the ones that the kernels were compiled for, as CMake names them.
std::string refusal(const DeviceFacts& device, std::string_view architectures);

// Returns whether the kernels that need wgmma, TMA and most of Hopper's shared memory (attention,
// streamed GEMMs, one_row) run on the device; other devices run the portable kernels.
bool runs_hopper_kernels(const DeviceFacts& device);

// Returns whether operations on one row may be fused into one kernel. Its blocks wait for each
// other, so it needs all multiprocessors at once: under MPS another process's kernel may occupy
// some of them.
bool may_gather(const DeviceFacts& device);

}  // namespace skiff::cuda
