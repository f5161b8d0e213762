// comm/nodes.h -- a group of ranks on several nodes: processes that are connected over TCP, each
// with as many ranks, which are threads of it. All nodes are connected to node 0, which adds up
// rank by rank and hands out the results, so the bits are those of a group of threads.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace skiff::comm {

struct NodeGroup {
  int node = 0, nodes = 2;
  int ranks = 1;               // on each node: rank r is on node r / ranks
  double silence_seconds = 6;  // time without a heartbeat after which a node counts as gone
  // Called from a thread of the group when it ends because of another node, even while this one
  // does nothing; may be empty.
  std::function<void(const std::string& why)> ended;
};

// A connected socket, and what reasons call the node at its other end.
struct NodeSocket {
  int fd = -1;
  std::string name;
};

class Nodes {
 public:
  // Takes the sockets over: on node 0 one to each other node, in order; elsewhere the one to
  // node 0.
  Nodes(const NodeGroup& group, const std::vector<NodeSocket>& sockets);
  Nodes(const Nodes&) = delete;
  // Ends the group for all, unless it has ended already.
  ~Nodes();

  // Makes the meshes of the ranks of this node, in order. Called once; this object must outlive
  // them.
  std::vector<Mesh> make_meshes();

  // On node 0: sends a message to all other nodes. Messages and collectives do not wait for each
  // other.
  void send(std::span<const std::byte> message);
  // Elsewhere: returns the next message of node 0; nothing once it has dismissed this node, or the
  // group has ended.
  std::optional<std::vector<std::byte>> receive();
  // On node 0: tells the others that no message follows, and ends the group in good order. No rank
  // may be in a collective.
  void dismiss();

  // Ends the group with the reason `why`, as Communicator::abort() of any rank here does.
  void abort(const std::string& why);
  // Why the group has ended; empty while it has not, and where it was dismissed.
  std::string reason() const;

 private:
  struct Impl;
  class Rank;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::comm
