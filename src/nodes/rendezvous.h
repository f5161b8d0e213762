// nodes/rendezvous.h -- how the processes of several nodes find each other, and who is turned away.
//
// Node 0 listens and says Hello; each other node answers with Login (peer/wire.h), whose proof
// shows that it knows the key and whose first fact is its number. Node 0 says Welcome to all once
// all have come, or Refused with the reason.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "nodes/settings.h"
#include "peer/stream.h"

namespace skiff::nodes {

// A connection to another node that belongs to the group, ready for blocking calls, and what
// messages call the node.
struct Joined {
  peer::Fd fd;
  std::string name;
};

// The place where node 0 awaits the others.
class Door {
 public:
  // Binds the address of `settings`, so that a port in use is found at once. Throws LoadError.
  explicit Door(const Settings& settings);
  int port() const { return peer::port_of(listener_); }

  // Returns once all other nodes have come, with one connection to each, in order. Whoever does not
  // know the key, has a number that is taken or out of range, or differs in a fact is told why and
  // turned away, which the log says; whoever says nothing for a few seconds is dropped; one that
  // came and is gone again may come again. Throws LoadError with the nodes that are missing after
  // Settings::join_seconds.
  std::vector<Joined> await_all(const peer::Facts& facts);

 private:
  const Settings& settings_;
  peer::Fd listener_;
};

// Returns the connection to node 0 once that has gathered all nodes. Tries again while node 0 is
// not there. Throws LoadError if this node is turned away, with the reason, if node 0 does not know
// the key, or after Settings::join_seconds.
Joined join_first(const Settings& settings, const peer::Facts& facts);

}  // namespace skiff::nodes
