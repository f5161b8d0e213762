// engine/device_nodes.h -- the ranks of a node that compute on CUDA devices and exchange with those
// of other nodes through NCCL.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/group.h"
#include "comm/nodes.h"
#include "engine/node_group.h"
#include "engine/resolved.h"

namespace skiff::engine {

class DeviceNodes {
 public:
  // `lost` is called, from any thread, where NCCL has lost another node, or where ranks do not
  // leave a group that has ended. Throws LoadError.
  DeviceNodes(const Resolved& resolved, const Lost& lost);

  // Makes the meshes of the ranks here, once all nodes have called it. Throws comm::GroupEnded.
  std::vector<comm::Mesh> connect(comm::Nodes& nodes);
  void begin_service() { group_.begin_service(); }
  // Has ranks that wait for another node leave.
  void end(const std::string& why) { group_.end(why); }

 private:
  const bool first_;
  nccl::Group group_;
};

// Returns null where all ranks are on one node, or on hosts.
std::unique_ptr<DeviceNodes> make_device_nodes(const Resolved& resolved, const Lost& lost);

// What the devices of all nodes must agree on besides their arithmetic.
peer::Facts device_facts(const Resolved& resolved);

// Node 0 tells the others `bytes`, which it has, and the others return them.
std::vector<std::byte> bytes_of_first(comm::Nodes& nodes, bool first, std::vector<std::byte> bytes);

}  // namespace skiff::engine
