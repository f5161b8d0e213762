// comm/devices/grid_testing.h -- for tests: where ranks that are in two groups each can be.
#pragma once
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tensor/device_memory.h"

namespace skiff::devices {

// Says why so many ranks, each in two groups, cannot run here; empty: they can, on a device each
// where there are enough, else all on the first one. There a kernel that is loaded waits for those
// that run, and these may be waiting for a rank that is about to load the same one; so all must be
// loaded before.
inline std::string why_no_grid(int ranks) {
  const int there = num_cuda_devices();
  if (there == 0) return "there is no CUDA device";
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  if (there >= ranks || (loading != nullptr && std::string_view(loading) == "EAGER")) return "";
  return fmt::format("there are {} CUDA devices; it takes {}, or CUDA_MODULE_LOADING=EAGER", there,
                     ranks);
}

}  // namespace skiff::devices
