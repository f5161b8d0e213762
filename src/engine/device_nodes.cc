#include "engine/device_nodes.h"

#include <algorithm>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::engine {
namespace {

bool are_devices_of_nodes(const Resolved& resolved) {
  return resolved.nodes.nodes > 1 && resolved.device.kind == ComputeDevice::kCuda;
}

}  // namespace

DeviceNodes::DeviceNodes(const Resolved& resolved, const Lost& lost)
    : first_(resolved.nodes.node == 0),
      group_(
          {.first_device = resolved.device.index, .ranks = resolved.ranks_here(), .failed = lost}) {
}

std::unique_ptr<DeviceNodes> make_device_nodes(const Resolved& resolved, const Lost& lost) {
  if (!are_devices_of_nodes(resolved)) return nullptr;
  return std::make_unique<DeviceNodes>(resolved, lost);
}

peer::Facts device_facts(const Resolved& resolved) {
  if (!are_devices_of_nodes(resolved)) return {};
  const Result<nccl::Library> library = nccl::load_library();
  if (!library) fail_load("{}", library.error().what);
  return {{"the version of NCCL", nccl::version_text(library->version)}};
}

std::vector<std::byte> bytes_of_first(comm::Nodes& nodes, bool first,
                                      std::vector<std::byte> bytes) {
  if (first) {
    nodes.send(bytes);
    return bytes;
  }
  auto got = nodes.receive();
  if (!got) throw comm::GroupEnded(nodes.reason());
  return std::move(*got);
}

std::vector<comm::Mesh> DeviceNodes::connect(comm::Nodes& nodes) {
  std::vector<std::byte> bytes;
  nccl::UniqueId id;
  if (first_) {
    id = group_.make_id();
    bytes.assign(id.bytes.begin(), id.bytes.end());
  }
  bytes = bytes_of_first(nodes, first_, std::move(bytes));
  if (bytes.size() != id.bytes.size())
    throw comm::GroupEnded(fmt::format("node 0 has sent {} bytes as the id of a group of {}",
                                       bytes.size(), id.bytes.size()));
  std::ranges::copy(bytes, id.bytes.begin());
  std::vector<std::unique_ptr<comm::Communicator>> hosts;
  for (comm::Mesh& mesh : nodes.make_meshes()) hosts.push_back(std::move(mesh.tp));
  return group_.connect(id, std::move(hosts));
}

}  // namespace skiff::engine
