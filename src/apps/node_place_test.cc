#include "apps/node_place.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "apps/args.h"

namespace skiff::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const std::vector<std::string> kOwn{"10.0.0.2", "fd00::2", "127.0.0.1"};

NodePlace place(const Variables& variables, const std::string& ips = "",
                const std::vector<std::string>& own = kOwn) {
  return find_node({.look_up =
                        [&](const char* name) {
                          const auto found = variables.find(name);
                          return found == variables.end() ? nullptr : found->second.c_str();
                        },
                    .ips = ips,
                    .own = own});
}

std::string refusal(const Variables& variables, const std::string& ips = "",
                    const std::vector<std::string>& own = kOwn) {
  try {
    place(variables, ips, own);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(NodePlace, WithoutAnythingThereIsOneNode) {
  EXPECT_EQ(place({}), NodePlace{});
  EXPECT_EQ(place({{"OMPI_COMM_WORLD_SIZE", ""}, {"LWS_GROUP_SIZE", ""}}), NodePlace{});
  EXPECT_EQ(place({{"POD_IPS", "10.0.0.2,fd00::2"}}), NodePlace{}) << "two addresses of one pod";
  EXPECT_EQ(place({{"MP_NNODE", "1"}, {"MP_NUM", "8"}}), NodePlace{});
}

TEST(NodePlace, OfMpirun) {
  const Variables two{{"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_EQ(place(two), (NodePlace{.node = 1, .nodes = 2, .source = "mpirun"}));
  Variables wrong = two;
  wrong["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("2 processes"), HasSubstr("-npernode 1")));
  wrong = two;
  wrong["OMPI_COMM_WORLD_RANK"] = "2";
  EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("OMPI_COMM_WORLD_RANK is 2"), HasSubstr("are 2")));
  wrong.erase("OMPI_COMM_WORLD_RANK");
  EXPECT_THAT(refusal(wrong), HasSubstr("OMPI_COMM_WORLD_RANK is not"));
  wrong = two;
  wrong["OMPI_COMM_WORLD_SIZE"] = "2x";
  EXPECT_THAT(refusal(wrong), HasSubstr("\"2x\""));
}

TEST(NodePlace, OfALeaderWorkerSet) {
  EXPECT_EQ(place({{"LWS_GROUP_SIZE", "3"}, {"LWS_WORKER_INDEX", "0"}}),
            (NodePlace{.node = 0, .nodes = 3, .source = "LeaderWorkerSet"}));
  EXPECT_THAT(refusal({{"LWS_GROUP_SIZE", "0"}}), HasSubstr("LWS_GROUP_SIZE is \"0\""));
}

TEST(NodePlace, OfAListIsWhereAnOwnAddressStands) {
  EXPECT_EQ(place({}, "10.0.0.1, 10.0.0.2"), (NodePlace{.node = 1, .nodes = 2, .source = "--ips"}));
  EXPECT_EQ(place({}, "fd00:0::0:2,10.0.0.1").node, 0) << "an address has several spellings";
  EXPECT_EQ(place({}, "10.0.0.2").nodes, 1);
  EXPECT_THAT(refusal({}, "10.0.0.1,10.0.0.3"),
              AllOf(HasSubstr("no address of this node"), HasSubstr("10.0.0.1, 10.0.0.3"),
                    HasSubstr("10.0.0.2, fd00::2")));
  EXPECT_THAT(refusal({}, "10.0.0.1,10.0.0.2,10.0.0.1"), HasSubstr("10.0.0.1 twice"));
  EXPECT_THAT(refusal({}, "10.0.0.2,127.0.0.1"),
              HasSubstr("two addresses of this node, 10.0.0.2 and 127.0.0.1"));
  EXPECT_THAT(refusal({}, "10.0.0.2,"), HasSubstr("\"\" is no IPv4"));
  EXPECT_THAT(refusal({}, "10.0.0.2,host-b"), HasSubstr("\"host-b\""));
}

TEST(NodePlace, OfPaddlesVariables) {
  const Variables two{{"POD_IPS", "10.0.0.1,10.0.0.2"},
                      {"POD_0_IP", "10.0.0.1"},
                      {"MP_NNODE", "2"},
                      {"MP_NUM", "16"}};
  EXPECT_EQ(place(two), (NodePlace{.node = 1, .nodes = 2, .source = "POD_IPS"}));
  const auto with = [&](const char* name, const char* value) {
    Variables other = two;
    other[name] = value;
    return refusal(other);
  };
  EXPECT_THAT(with("MP_NNODE", "4"), HasSubstr("MP_NNODE is 4, but POD_IPS has 2"));
  EXPECT_THAT(with("MP_NUM", "7"), HasSubstr("MP_NUM is 7"));
  EXPECT_THAT(with("POD_0_IP", "10.0.0.2"), HasSubstr("begins with 10.0.0.1"));
  EXPECT_THAT(with("POD_IPS", ""), HasSubstr("POD_IPS, the addresses"));
}

TEST(NodePlace, SourcesMustAgree) {
  const Variables lws{{"LWS_GROUP_SIZE", "2"}, {"LWS_WORKER_INDEX", "1"}};
  EXPECT_EQ(place(lws, "10.0.0.1,10.0.0.2").source, "LeaderWorkerSet");
  EXPECT_THAT(refusal(lws, "10.0.0.2,10.0.0.1"), AllOf(HasSubstr("node 1 of 2 for LeaderWorkerSet"),
                                                       HasSubstr("node 0 of 2 for --ips")));
  EXPECT_THAT(refusal(lws, "10.0.0.1,10.0.0.2,10.0.0.3"), HasSubstr("node 1 of 3 for --ips"));
}

std::string refusal_to_share(const NodePlace& place, int replicas, int ranks) {
  try {
    share_of_node(place, replicas, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(NodePlace, ReplicasAndRanksAreDealtEvenly) {
  const NodePlace two{.node = 1, .nodes = 2, .source = "--ips"};
  EXPECT_EQ(share_of_node({}, 3, 1), (NodeShare{.replicas = 3}));
  EXPECT_EQ(share_of_node({}, 1, 4), NodeShare{});
  EXPECT_EQ(share_of_node(two, 4, 1), (NodeShare{.replicas = 2}));
  EXPECT_EQ(share_of_node(two, 4, 2), (NodeShare{.replicas = 2})) << "each has its ranks on a node";
  EXPECT_EQ(share_of_node(two, 1, 4), (NodeShare{.replicas = 1, .spread = true}));
  EXPECT_THAT(refusal_to_share(two, 3, 1), HasSubstr("--data-parallel-size is 3"));
  EXPECT_THAT(refusal_to_share(two, 1, 3),
              AllOf(HasSubstr("--ips says"), HasSubstr("2 nodes"),
                    HasSubstr("--tensor-parallel-size is 3"), HasSubstr("a multiple of 2")));
  EXPECT_THAT(refusal_to_share(two, 1, 1),
              AllOf(HasSubstr("2 nodes"), HasSubstr("--data-parallel-size is 1"),
                    HasSubstr("--tensor-parallel-size is 1")));
}

NodePlace place_by_rank(const std::string& ips, int rank) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  return find_node({.look_up = nothing, .ips = ips, .rank = rank, .own = kOwn});
}

TEST(NodePlace, ANumberNamesThePlaceInTheList) {
  EXPECT_EQ(place_by_rank("127.0.0.1,127.0.0.1", 1),
            (NodePlace{.node = 1, .nodes = 2, .source = "--ips"}));
  EXPECT_EQ(place_by_rank("10.9.9.9,10.9.9.8,10.9.9.7", 2).node, 2) << "a host behind NAT";
  EXPECT_THROW(place_by_rank("127.0.0.1,127.0.0.1", 2), UsageError);
  EXPECT_THROW(place_by_rank("127.0.0.1,nowhere", 1), UsageError);
  EXPECT_THROW(place_by_rank("", 1), UsageError);
}

TEST(NodePlace, TheFirstAddressIsWhereNodesComeTogether) {
  const auto first = [](const Variables& variables, const std::string& ips) {
    return first_address({.look_up =
                              [&](const char* name) {
                                const auto found = variables.find(name);
                                return found == variables.end() ? nullptr : found->second.c_str();
                              },
                          .ips = ips,
                          .own = kOwn});
  };
  EXPECT_EQ(first({}, "10.0.0.7, 10.0.0.2"), "10.0.0.7");
  EXPECT_EQ(first({{"LWS_LEADER_ADDRESS", "lws-0.lws"}}, ""), "lws-0.lws");
  EXPECT_EQ(first({{"POD_IPS", "10.0.0.3,10.0.0.2"}}, ""), "10.0.0.3");
  EXPECT_THROW(first({}, ""), UsageError);
}

TEST(NodePlace, OwnAddressesAreAddresses) {
  const auto addresses = own_addresses();
  EXPECT_THAT(addresses, testing::Contains("127.0.0.1"));
  for (const std::string& address : addresses) {
    in6_addr bytes;
    EXPECT_TRUE(inet_pton(AF_INET, address.c_str(), &bytes) == 1 ||
                inet_pton(AF_INET6, address.c_str(), &bytes) == 1)
        << address;
  }
}

}  // namespace
}  // namespace skiff::apps
