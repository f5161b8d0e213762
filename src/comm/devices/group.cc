#include "comm/devices/group.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/load_error.h"
#include "comm/devices/device_exchange.h"
#include "comm/devices/device_rank.h"
#include "ops/cuda/check.h"
#include "tensor/device_memory.h"

namespace skiff::devices {
namespace {

static_assert(DeviceGroup::kMaxSize == kMaxDevices);

constexpr size_t box_bytes(size_t size) { return kGenerations * size * kSlotBytes; }

std::vector<int> devices_from(int first, int size) {
  const int there = num_cuda_devices();
  if (first + size > there)
    fail_load("{} ranks need CUDA devices {} to {}; there are {}", size, first, first + size - 1,
              there);
  std::vector<int> devices(static_cast<size_t>(size));
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

std::vector<int> each_once(std::vector<int> devices) {
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  return devices;
}

Buffer zeroed_state(int device) {
  Buffer state(Device{Device::kCuda, static_cast<int8_t>(device)}, sizeof(ExchangeState));
  cuda::check(cudaMemset(state.data(), 0, sizeof(ExchangeState)), "clearing memory");
  return state;
}

uint32_t greeting_of(int rank) { return 0x5e1f0001u * static_cast<uint32_t>(rank + 1); }

// What a driver says about links has been wrong before: data must arrive, each way.
void check_links(const DeviceGroup::Shared& shared) {
  const auto size = static_cast<int>(shared.devices.size());
  for (int rank = 0; rank < size; ++rank) {
    cuda::check(cudaSetDevice(shared.devices[static_cast<size_t>(rank)]), "choosing a device");
    start_greeting(shared.exchange(rank), greeting_of(rank), nullptr);
    cuda::check(cudaDeviceSynchronize(), "writing to another device");
  }
  for (int rank = 0; rank < size; ++rank)
    for (int from = 0; from < size; ++from) {
      if (from == rank) continue;
      std::array<uint32_t, 4> got{};
      const std::byte* at =
          shared.boxes[static_cast<size_t>(rank)]->data() + static_cast<size_t>(from) * kSlotBytes;
      cuda::check(cudaMemcpy(got.data(), at, sizeof(got), cudaMemcpyDefault),
                  "reading what another device wrote");
      for (const uint32_t word : got)
        if (word != greeting_of(from))
          fail_load("what CUDA device {} writes to the memory of device {} does not arrive",
                    shared.devices[static_cast<size_t>(from)],
                    shared.devices[static_cast<size_t>(rank)]);
    }
}

void empty_boxes(const DeviceGroup::Shared& shared) {
  for (size_t rank = 0; rank < shared.devices.size(); ++rank) {
    cuda::check(cudaSetDevice(shared.devices[rank]), "choosing a device");
    start_emptying(shared.boxes[rank]->data(), shared.boxes[rank]->size(), nullptr);
    cuda::check(cudaDeviceSynchronize(), "clearing memory");
  }
}

}  // namespace

DeviceGroup::Shared::Shared(std::vector<int> by_rank, int64_t owners_from_bytes)
    : devices(std::move(by_rank)),
      owners_from(owners_from_bytes),
      signal(Buffer::pinned(sizeof(ExchangeSignal))) {
  if (devices.size() > kMaxDevices)
    fail_load("{} ranks on CUDA devices; at most {}", devices.size(), kMaxDevices);
  *reinterpret_cast<ExchangeSignal*>(signal.data()) = {};
  for (const int device : devices) {
    cuda::check(cudaSetDevice(device), "choosing a device");
    cuda::check(cudaFree(nullptr), "starting a device");  // memory is shared among contexts
  }
  for (const int device : devices) {
    boxes.push_back(
        std::make_unique<SharedMemory>(device, each_once(devices), box_bytes(devices.size())));
    states.push_back(zeroed_state(device));
  }
  empty_boxes(*this);
  check_links(*this);
  empty_boxes(*this);
}

DeviceGroup::DeviceGroup(int first_device, int size, int64_t owners_from)
    : DeviceGroup(devices_from(first_device, size), owners_from) {}

DeviceGroup::DeviceGroup(std::vector<int> devices, int64_t owners_from)
    : shared_(std::make_shared<Shared>(std::move(devices), owners_from)) {}

DeviceGroup::~DeviceGroup() = default;

std::vector<comm::Mesh> DeviceGroup::make_meshes() {
  std::vector<comm::Mesh> meshes;
  for (auto& hosts : comm::make_threads(static_cast<int>(shared_->devices.size())))
    meshes.push_back({.tp = std::make_unique<DeviceRank>(shared_, std::move(hosts))});
  return meshes;
}

std::vector<std::shared_ptr<comm::RowExchange>> DeviceGroup::make_exchanges() {
  std::vector<std::shared_ptr<comm::RowExchange>> exchanges;
  for (auto& hosts : comm::make_threads(static_cast<int>(shared_->devices.size())))
    exchanges.push_back(std::make_shared<DeviceExchange>(shared_, std::move(hosts)));
  return exchanges;
}

void DeviceGroup::begin_service() { shared_->in_service = true; }

}  // namespace skiff::devices
