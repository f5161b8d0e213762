#include "comm/devices/shared_memory.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <bit>
#include <vector>

#include "base/load_error.h"
#include "base/round_up.h"
#include "ops/cuda/check.h"
#include "ops/cuda/driver.h"

namespace skiff::devices {
namespace {

// What the driver has for it. CUDA driver API, "Virtual Memory Management".
template <class F>
F since_10_2(const char* name) {
  return cuda::driver_function<F>(name, 10020);
}

struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity =
      since_10_2<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemCreate) create = since_10_2<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = since_10_2<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemAddressReserve) reserve =
      since_10_2<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = since_10_2<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemMap) map = since_10_2<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = since_10_2<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = since_10_2<decltype(&cuMemSetAccess)>("cuMemSetAccess");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void need(CUresult result, int device, size_t bytes, const char* doing) {
  if (result != CUDA_SUCCESS)
    fail_load("CUDA error {} while {} the {} MiB on CUDA device {} that ranks exchange data in",
              static_cast<int>(result), doing, bytes >> 20, device);
}

void need_peers(int device, std::span<const int> devices) {
  for (const int other : devices) {
    int reaches = 1;
    if (other != device)
      cuda::check(cudaDeviceCanAccessPeer(&reaches, other, device),
                  "asking how devices are linked");
    if (reaches == 0)
      fail_load(
          "CUDA device {} cannot reach the memory of device {} (nvidia-smi topo -p2p r shows "
          "which can); ranks need that: choose devices with CUDA_VISIBLE_DEVICES, or give "
          "--tensor-parallel-size 1",
          other, device);
  }
}

CUmemLocation on(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }

}  // namespace

SharedMemory::SharedMemory(int device, std::span<const int> devices, size_t bytes) {
  need_peers(device, devices);
  const Driver& cu = driver();
  CUmemAllocationProp what = {};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = on(device);
  size_t unit = 0;
  need(cu.granularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), device, bytes,
       "measuring");
  size_ = round_up(bytes, unit);
  CUmemGenericAllocationHandle memory = 0;
  need(cu.create(&memory, size_, &what, 0), device, size_, "allocating");
  CUdeviceptr address = 0;
  need(cu.reserve(&address, size_, 0, 0, 0), device, size_, "finding a place for");
  need(cu.map(address, size_, 0, memory, 0), device, size_, "mapping");
  cu.release(memory);  // lives as long as it is mapped
  data_ = std::bit_cast<std::byte*>(address);
  std::vector<CUmemAccessDesc> access;
  for (const int reader : devices)
    access.push_back({.location = on(reader), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  need(cu.set_access(address, size_, access.data(), access.size()), device, size_, "sharing");
}

SharedMemory::~SharedMemory() {
  const auto address = std::bit_cast<CUdeviceptr>(data_);
  driver().unmap(address, size_);
  driver().free(address, size_);
}

}  // namespace skiff::devices
