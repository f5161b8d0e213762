#include "comm/devices/shared_memory.h"

#include <cuda_runtime.h>

#include "base/load_error.h"
#include "base/round_up.h"
#include "ops/cuda/check.h"
#include "tensor/virtual_memory.h"

namespace skiff::devices {
namespace {

void need_peers(int device, std::span<const int> devices) {
  for (const int other : devices) {
    int reaches = 1;
    if (other != device)
      cuda::check(cudaDeviceCanAccessPeer(&reaches, other, device),
                  "asking how devices are linked");
    if (reaches == 0)
      fail_load(
          "CUDA device {} cannot reach the memory of device {} (nvidia-smi topo -p2p r shows "
          "which can); ranks, and replicas that share experts, need that: choose devices with "
          "CUDA_VISIBLE_DEVICES, or leave --tensor-parallel-size or --enable-expert-parallel out",
          other, device);
  }
}

}  // namespace

SharedMemory::SharedMemory(int device, std::span<const int> devices, size_t bytes) {
  need_peers(device, devices);
  const size_t unit = virtual_unit(device);
  if (unit == 0)
    fail_load("CUDA device {}, or its driver, has no virtual memory management: ranks need it",
              device);
  size_ = round_up(bytes, unit);
  data_ = reserve_addresses(size_);
  if (map_memory(data_, size_, device, devices)) return;
  release_addresses(data_, size_);
  fail_load("CUDA device {} has no room for the {} MiB that ranks exchange data in", device,
            size_ >> 20);
}

SharedMemory::~SharedMemory() {
  unmap_memory(data_, size_);
  release_addresses(data_, size_);
}

}  // namespace skiff::devices
