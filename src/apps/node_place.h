// apps/node_place.h -- finds which of several nodes this one is. mpirun, Kubernetes or a list of
// addresses says so.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace skiff::apps {

struct NodePlace {
  int node = 0, nodes = 1;  // this node's number, from 0, and how many there are
  std::string source;       // what said so, for people; empty where nothing did
  bool operator==(const NodePlace&) const = default;
};

// What the place is read from.
struct NodeFacts {
  // Returns the value of an environment variable, or null.
  std::function<const char*(const char* name)> look_up;
  std::string ips;  // --ips: addresses of all nodes in order, with commas; may be empty
  int rank = -1;    // --node-rank: this node's place in that list; -1: by its own addresses
  std::vector<std::string> own;  // the addresses of this machine's interfaces
};

// Reads, as far as they are there: OMPI_COMM_WORLD_* of mpirun, LWS_* of a LeaderWorkerSet, --ips,
// and PaddleNLP's POD_IPS with POD_0_IP, MP_NNODE and MP_NUM. In a list this node is where one of
// its own addresses stands; --node-rank names its place in --ips instead, where an address may then
// stand several times. All that are there must agree.
//
// POD_IPS counts only beside POD_0_IP or MP_NNODE: alone it may be the two addresses of one pod.
//
// Throws UsageError, naming the variables and values: for numbers out of range, an address that
// stands twice, a list without an own address or with two, several processes on one node, and
// sources that disagree.
NodePlace find_node(const NodeFacts& facts);

// Returns the address of node 0: the first of --ips or POD_IPS, or LWS_LEADER_ADDRESS. Throws
// UsageError if nothing names it.
std::string first_address(const NodeFacts& facts);

// Returns the IPv4 and IPv6 addresses of this machine's interfaces, those of the loopback last.
std::vector<std::string> own_addresses();

// How many replicas run on a node, and whether the ranks of one are spread over all nodes.
struct NodeShare {
  int replicas = 1;
  bool spread = false;
  bool operator==(const NodeShare&) const = default;
};
// Deals `replicas` of `ranks` ranks each to the nodes: whole replicas where there are several, else
// the ranks of the one. Throws UsageError with the numbers if they cannot be dealt evenly.
NodeShare share_of_node(const NodePlace& place, int replicas, int ranks);

}  // namespace skiff::apps
