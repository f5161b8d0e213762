// nodes/settings.h -- how the processes of several nodes find each other, as a user sets it.
#pragma once
#include <string>

#include "peer/settings.h"
#include "peer/wire.h"

namespace skiff::nodes {

struct Settings {
  int node = 0, nodes = 1;     // this node's number, from 0, and how many there are; 1: all is here
  peer::Address first;         // where node 0 listens and the others find it; port 0 on node 0: any
  std::string key;             // secret that all nodes know; may be empty
  double join_seconds = 600;   // longest time until all nodes have come
  double silence_seconds = 6;  // time without a sign of life after which a node counts as gone
  // What all nodes must agree on besides what the engine compares: names and values in an order
  // that all have.
  peer::Facts facts;
};

}  // namespace skiff::nodes
