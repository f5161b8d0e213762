#include <cuda.h>
#include <cuda_runtime.h>

#include <bit>
#include <vector>

#include "base/load_error.h"
#include "tensor/virtual_memory.h"

namespace skiff {
namespace {

// Returns null where the driver is older than the function.
template <class F>
F function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = {};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess)
    return reinterpret_cast<F>(found);
  cudaGetLastError();
  return nullptr;
}

template <class F>
F since_10_2(const char* name) {
  return function<F>(name, 10020);
}

struct Driver {
  decltype(&cuDeviceGetAttribute) attribute =
      function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute", 2000);
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
  decltype(&cuMemRetainAllocationHandle) retain =
      function<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle", 11000);

  bool whole() const {
    return attribute && granularity && create && release && reserve && free && map && unmap &&
           set_access && retain;
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void need(CUresult result, size_t bytes, const char* doing) {
  if (result != CUDA_SUCCESS)
    fail_load("CUDA error {} while {} {} MiB of device memory", static_cast<int>(result), doing,
              bytes >> 20);
}

CUmemLocation on(int device) { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}; }

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp what = {};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = on(device);
  return what;
}

CUdeviceptr address(const std::byte* at) { return std::bit_cast<CUdeviceptr>(at); }

// Maps the memory and lets go of its handle: it lives as long as it is mapped.
void map_and_release(std::byte* at, size_t bytes, CUmemGenericAllocationHandle memory,
                     std::span<const int> readers) {
  const CUresult mapped = driver().map(address(at), bytes, 0, memory, 0);
  driver().release(memory);
  need(mapped, bytes, "mapping");
  std::vector<CUmemAccessDesc> access;
  access.reserve(readers.size());
  for (const int reader : readers)
    access.push_back({.location = on(reader), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const CUresult shared = driver().set_access(address(at), bytes, access.data(), access.size());
  if (shared != CUDA_SUCCESS) driver().unmap(address(at), bytes);
  need(shared, bytes, "sharing");
}

}  // namespace

size_t virtual_unit(int device) {
  if (!driver().whole()) return 0;
  int supported = 0;
  size_t unit = 0;
  const CUmemAllocationProp what = memory_of(device);
  const bool known =
      driver().attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                         device) == CUDA_SUCCESS &&
      supported != 0 &&
      driver().granularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS;
  return known ? unit : 0;
}

std::byte* reserve_addresses(size_t bytes) {
  CUdeviceptr at = 0;
  need(driver().reserve(&at, bytes, 0, 0, 0), bytes, "finding a place for");
  return std::bit_cast<std::byte*>(at);
}

void release_addresses(std::byte* at, size_t bytes) { driver().free(address(at), bytes); }

bool map_memory(std::byte* at, size_t bytes, int device, std::span<const int> readers) {
  CUmemGenericAllocationHandle memory = 0;
  const CUmemAllocationProp what = memory_of(device);
  const CUresult created = driver().create(&memory, bytes, &what, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
  need(created, bytes, "allocating");
  map_and_release(at, bytes, memory, readers);
  return true;
}

void unmap_memory(std::byte* at, size_t bytes) { driver().unmap(address(at), bytes); }

void remap_memory(std::byte* to, std::byte* from, size_t bytes, int device) {
  CUmemGenericAllocationHandle memory = 0;
  need(driver().retain(&memory, from), bytes, "finding");
  unmap_memory(from, bytes);
  unmap_memory(to, bytes);
  map_and_release(to, bytes, memory, {&device, 1});
}

}  // namespace skiff
