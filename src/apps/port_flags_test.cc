#include "apps/port_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

PortPlan plan(const Words& words, int replicas) { return port_plan(Args(kServe, words), replicas); }

std::string refusal(const Words& words, int replicas = 2) {
  try {
    plan(words, replicas);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PortFlags, OnePortServesAllReplicas) {
  const PortPlan one = plan({"--port", "8100"}, 4);
  EXPECT_THAT(one.ports, ElementsAre(8100));
  EXPECT_EQ(one.serving, 1);
  EXPECT_FALSE(one.for_each_replica());
  EXPECT_FALSE(one.uses[0].observes);
}

TEST(PortFlags, MetricsMayHaveAPortOfTheirOwn) {
  const PortPlan two = plan({"--port", "8100", "--metrics-port", "8101"}, 1);
  EXPECT_THAT(two.ports, ElementsAre(8100, 8101));
  EXPECT_EQ(two.serving, 1);
  EXPECT_THAT(two.metrics, ElementsAre(1));
  EXPECT_TRUE(two.uses[1].observes);
  EXPECT_FALSE(two.uses[1].replica);
  EXPECT_THAT(plan({"--port", "8100", "--metrics-port", "8100"}, 1).ports, ElementsAre(8100));
}

TEST(PortFlags, APortForEachReplicaInOrder) {
  const Words words{"--ports",         "8000,8002", "--num-servers", "2",
                    "--metrics-ports", "8800,8002", "--args"};
  const PortPlan each = plan(words, 2);
  EXPECT_THAT(each.ports, ElementsAre(8000, 8002, 8800)) << "8002 has its own metrics";
  EXPECT_EQ(each.serving, 2);
  EXPECT_THAT(each.metrics, ElementsAre(2, 1));
  ASSERT_TRUE(each.for_each_replica());
  EXPECT_EQ(each.uses[0].replica, 0);
  EXPECT_EQ(each.uses[1].replica, 1);
  EXPECT_EQ(each.uses[2].replica, 0);
  EXPECT_FALSE(each.uses[1].observes);
  EXPECT_TRUE(each.uses[2].observes);
  EXPECT_THAT(plan({"--ports", "0,0"}, 2).ports, ElementsAre(0, 0)) << "any free ones";
}

TEST(PortFlags, TheServerGetsAllOfThem) {
  serve::ServerConfig config;
  apply_ports(plan({"--ports", "8000,8002", "--metrics-ports", "8800,8802"}, 2), &config);
  EXPECT_EQ(config.http.port, 8000);
  EXPECT_THAT(config.http.more_ports, ElementsAre(8002, 8800, 8802));
  EXPECT_EQ(config.port_uses.size(), 4);
}

TEST(PortFlags, WhatDoesNotFitIsRefusedWithBothNumbers) {
  EXPECT_THAT(refusal({"--ports", "8000,8001,8002"}),
              AllOf(HasSubstr("--ports has 3 ports"), HasSubstr("2 replicas"),
                    HasSubstr("--data-parallel-size")));
  EXPECT_THAT(refusal({"--ports", "8000,8001", "--metrics-ports", "8800"}),
              HasSubstr("--metrics-ports has 1 ports"));
  EXPECT_THAT(refusal({"--ports", "8000,8001", "--num-servers", "3"}),
              AllOf(HasSubstr("--num-servers is 3"), HasSubstr("2 ports")));
  EXPECT_THAT(refusal({"--num-servers", "2"}), HasSubstr("--num-servers needs --ports"));
  EXPECT_THAT(refusal({"--metrics-ports", "1,2"}), HasSubstr("--metrics-ports needs --ports"));
  EXPECT_THAT(refusal({"--ports", "8000,8001", "--metrics-port", "8002"}),
              HasSubstr("--metrics-ports"));
  EXPECT_THAT(refusal({"--ports", "8000,8000"}), HasSubstr("port 8000 twice"));
  EXPECT_THAT(refusal({"--ports", "8000,8001", "--metrics-ports", "8001,8002"}),
              HasSubstr("port 8001"));
  for (const char* text : {"8000,", ",8000", "8000 ,8001", "8000,65536", "8000,-1", "8000,x", ""})
    EXPECT_THAT(refusal({"--ports", text}), HasSubstr("which is no port")) << text;
}

TEST(PortFlags, FilesOfABackgroundServerHaveTheFirstPort) {
  EXPECT_EQ(naming_port(Args(kServe, Words{"--port", "81"})), 81);
  EXPECT_EQ(naming_port(Args(kServe, Words{"--ports", "82,83"})), 82);
  EXPECT_EQ(naming_port(Args(kStop, Words{"--port", "84"})), 84);
}

}  // namespace
}  // namespace skiff::apps
