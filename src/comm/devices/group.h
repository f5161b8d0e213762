// comm/devices/group.h -- ranks that each compute on a CUDA device of their own, in one process.
// What they add up crosses the link between devices in kernels of the ranks' own streams, so that
// no host waits for another (comm/devices/exchange.h).
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace skiff::devices {

// A device may be in several groups, each with memory of its own there. Their collectives belong to
// one queue, and every device has them in the same order.
//
// Collectives take f32 and bf16 of any shape and stride; all_gather takes f32. An Ops is that of
// make_cuda_ops() for the rank's device. Sums are the same bits for every number of rows, on every
// rank, and whether a step is replayed or not.
//
// Until begin_service() the hosts of all ranks meet before each collective and wait until it is
// done, unless it is being recorded: so no device waits for another while its rank loads kernels,
// allocates or tunes. From then on a rank must not do such things in a step.
class DeviceGroup {
 public:
  // Ranks 0, 1, ... are on devices first_device, first_device + 1, ...; at most kMaxSize of them.
  // Takes 24 MiB times `size` on each device. Throws LoadError where devices cannot reach each
  // other's memory, or where a pattern does not arrive.
  // A sum of `owners_from` bytes and more is taken row by row by the row's owner, with the same
  // bits, where the residual's use allows it (ResidualUse::kSums).
  static constexpr int kMaxSize = 8;
  DeviceGroup(int first_device, int size, int64_t owners_from);
  DeviceGroup(int first_device, int size) : DeviceGroup(first_device, size, owners_from(size)) {}
  // Rank r is on devices[r]. Several may be on one, for tests: then what waits there takes a small
  // part of the device. In service no rank may copy by cudaMemcpyAsync there, because a device
  // makes the copies of all streams one after the other, nor load a kernel.
  DeviceGroup(std::vector<int> devices, int64_t owners_from);
  explicit DeviceGroup(const std::vector<int>& devices)
      : DeviceGroup(devices, owners_from(static_cast<int>(devices.size()))) {}
  // Returns the size from which on owners are faster: on H200s that NVLink joins, measured on two
  // and estimated for more.
  static constexpr int64_t owners_from(int size) { return size > 2 ? 512 << 10 : 1 << 20; }
  ~DeviceGroup();  // after the meshes

  std::vector<comm::Mesh> make_meshes();
  // For ranks that have rows of their own instead; begin_service() is RowExchange's.
  std::vector<std::shared_ptr<comm::RowExchange>> make_exchanges();
  void begin_service();

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace skiff::devices
