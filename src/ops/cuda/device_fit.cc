#include "ops/cuda/device_fit.h"

#include <fmt/format.h>

namespace skiff::cuda {
namespace {

constexpr int kMinMajor = 8;  // asynchronous copies and products of bf16
// The most that any kernel for Hopper asks for; every device of capability 9.0 has it.
constexpr int64_t kHopperShared = 227 << 10;

std::string named(const DeviceFacts& d) {
  return fmt::format("CUDA device {} ({}, compute capability {}.{})", d.index, d.name, d.major,
                     d.minor);
}

}  // namespace

std::string refusal(const DeviceFacts& d, std::string_view architectures) {
  if (d.major < kMinMajor)
    return fmt::format("{} is too old: {}.0 or later is needed; name another --device, or cpu",
                       named(d), kMinMajor);
  if (!d.has_kernels)
    return fmt::format(
        "{} cannot run this build, whose kernels are compiled for {}: build with "
        "-DCMAKE_CUDA_ARCHITECTURES={}{}, or name another --device",
        named(d), architectures, d.major, d.minor);
  return {};
}

bool runs_hopper_kernels(const DeviceFacts& d) {
  return d.major == 9 && d.max_block_shared >= kHopperShared;
}

bool may_gather(const DeviceFacts& d) { return runs_hopper_kernels(d) && !d.mps; }

}  // namespace skiff::cuda
