#include "apps/node_place.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include "apps/args.h"

namespace skiff::apps {
namespace {

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw UsageError(fmt::format(format, std::forward<Values>(values)...));
}

// Empty values count as absent.
std::optional<std::string> text_of(const NodeFacts& facts, const char* name) {
  const char* value = facts.look_up(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int> number_of(const NodeFacts& facts, const char* name, int least) {
  const auto text = text_of(facts, name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < least)
    refuse("{} is \"{}\"; it must be a whole number of at least {}", name, *text, least);
  return value;
}

// `number` and `count` are the names of the variables that say which of how many.
NodePlace place_among(const NodeFacts& facts, const char* number, const char* count, int nodes,
                      std::string source) {
  const auto node = number_of(facts, number, 0);
  if (!node) refuse("{} is set and {} is not: both are needed", count, number);
  if (*node >= nodes)
    refuse("{} is {}, but {} says that there are {}", number, *node, count, nodes);
  return {.node = *node, .nodes = nodes, .source = std::move(source)};
}

std::optional<NodePlace> of_mpi(const NodeFacts& facts) {
  const auto size = number_of(facts, "OMPI_COMM_WORLD_SIZE", 1);
  if (!size) return std::nullopt;
  const int here = number_of(facts, "OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1);
  if (here > 1)
    refuse(
        "mpirun has started {} processes on this node (OMPI_COMM_WORLD_LOCAL_SIZE); one process "
        "holds all ranks and replicas of a node: give mpirun -npernode 1",
        here);
  return place_among(facts, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", *size, "mpirun");
}

std::optional<NodePlace> of_worker_set(const NodeFacts& facts) {
  const auto size = number_of(facts, "LWS_GROUP_SIZE", 1);
  if (!size) return std::nullopt;
  return place_among(facts, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", *size, "LeaderWorkerSet");
}

// Returns the form in which addresses are compared: bytes behind their family.
std::string bytes_of(const std::string& source, const std::string& address) {
  std::string bytes(16, '\0');
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) return "4" + bytes.substr(0, 4);
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return "6" + bytes;
  refuse("{}: \"{}\" is no IPv4 or IPv6 address", source, address);
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view part = list.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

NodePlace place_in(const std::vector<std::string>& list, const NodeFacts& facts,
                   const std::string& source) {
  std::vector<std::string> seen, own;
  for (const std::string& address : facts.own) own.push_back(bytes_of("interfaces", address));
  std::optional<size_t> place;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string bytes = bytes_of(source, list[i]);
    if (std::ranges::find(seen, bytes) != seen.end()) refuse("{} has {} twice", source, list[i]);
    seen.push_back(bytes);
    if (std::ranges::find(own, bytes) == own.end()) continue;
    if (place)
      refuse("{} has two addresses of this node, {} and {}", source, list[*place], list[i]);
    place = i;
  }
  if (!place)
    refuse("{} has no address of this node ({} are in it, {} are its own)", source, joined(list),
           joined(facts.own));
  return {
      .node = static_cast<int>(*place), .nodes = static_cast<int>(list.size()), .source = source};
}

std::optional<NodePlace> of_flag(const NodeFacts& facts) {
  if (facts.ips.empty() && facts.rank >= 0)
    refuse("--node-rank is {}, but --ips, the addresses of the nodes, is not given", facts.rank);
  if (facts.ips.empty()) return std::nullopt;
  const std::vector<std::string> list = split(facts.ips);
  if (facts.rank < 0) return place_in(list, facts, "--ips");
  for (const std::string& address : list) bytes_of("--ips", address);
  if (facts.rank >= std::ssize(list))
    refuse("--node-rank is {}, but --ips has {} addresses", facts.rank, list.size());
  return NodePlace{.node = facts.rank, .nodes = static_cast<int>(list.size()), .source = "--ips"};
}

std::optional<NodePlace> of_paddle(const NodeFacts& facts) {
  const auto first = text_of(facts, "POD_0_IP");
  const auto nodes = number_of(facts, "MP_NNODE", 1);
  const auto ranks = number_of(facts, "MP_NUM", 1);
  if (nodes && ranks && *ranks % *nodes != 0)
    refuse("MP_NUM is {}, which is no multiple of MP_NNODE, {}", *ranks, *nodes);
  const auto ips = text_of(facts, "POD_IPS");
  if (!first && !nodes) return std::nullopt;
  if (!ips) {
    if (nodes.value_or(1) == 1) return std::nullopt;
    refuse("MP_NNODE is {}, but POD_IPS, the addresses of the nodes, is not set", *nodes);
  }
  const std::vector<std::string> list = split(*ips);
  if (nodes && *nodes != static_cast<int>(list.size()))
    refuse("MP_NNODE is {}, but POD_IPS has {} addresses: {}", *nodes, list.size(), *ips);
  if (first && bytes_of("POD_0_IP", *first) != bytes_of("POD_IPS", list.front()))
    refuse("POD_0_IP is {}, but POD_IPS begins with {}: the first node comes first", *first,
           list.front());
  return place_in(list, facts, "POD_IPS");
}

}  // namespace

NodePlace find_node(const NodeFacts& facts) {
  std::optional<NodePlace> found;
  for (const auto& source : {of_mpi, of_worker_set, of_flag, of_paddle}) {
    const std::optional<NodePlace> place = source(facts);
    if (!place) continue;
    if (found && (found->node != place->node || found->nodes != place->nodes))
      refuse("this is node {} of {} for {}, but node {} of {} for {}", found->node, found->nodes,
             found->source, place->node, place->nodes, place->source);
    if (!found) found = place;
  }
  return found.value_or(NodePlace{});
}

std::string first_address(const NodeFacts& facts) {
  if (!facts.ips.empty()) return split(facts.ips).front();
  if (const auto leader = text_of(facts, "LWS_LEADER_ADDRESS")) return *leader;
  if (const auto ips = text_of(facts, "POD_IPS")) return split(*ips).front();
  refuse(
      "nothing says at which address the nodes come together: give --ips, with the address of the "
      "first node in front");
}

std::vector<std::string> own_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  std::vector<std::string> addresses, loopback;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const void* bytes = family == AF_INET
                            ? static_cast<const void*>(
                                  &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, bytes, text, sizeof text) == nullptr) continue;
    (one->ifa_flags & IFF_LOOPBACK ? loopback : addresses).emplace_back(text);
  }
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

NodeShare share_of_node(const NodePlace& place, int replicas, int ranks) {
  const int nodes = place.nodes;
  if (nodes == 1) return {.replicas = replicas, .spread = false};
  if (replicas == 1 && ranks == 1)
    refuse(
        "{} says that there are {} nodes, but --data-parallel-size is 1 and "
        "--tensor-parallel-size is 1: one of them must be a multiple of {}",
        place.source, nodes, nodes);
  if (replicas == 1 && ranks % nodes != 0)
    refuse(
        "{} says that there are {} nodes, but --tensor-parallel-size is {}: it counts the ranks on "
        "all nodes and must be a multiple of {}",
        place.source, nodes, ranks, nodes);
  if (replicas == 1) return {.replicas = 1, .spread = true};
  if (replicas % nodes == 0) return {.replicas = replicas / nodes, .spread = false};
  refuse(
      "{} says that there are {} nodes, but --data-parallel-size is {}: it counts the replicas on "
      "all nodes and must be a multiple of {}, or 1 for one model over all nodes",
      place.source, nodes, replicas, nodes);
}

}  // namespace skiff::apps
