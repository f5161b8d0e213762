#include "apps/router_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> idle(Commands command, const std::vector<std::string>& words) {
  return idle_router_flags(Args(command, words));
}

TEST(RouterFlags, WhatNeedsAnotherFlagIsNamed) {
  EXPECT_THAT(idle(kServe, {"m", "--router-key-file", "k", "--router-advertise", "h"}),
              ElementsAre("--router-key-file has no effect without --router",
                          "--router-advertise has no effect without --router"));
  EXPECT_THAT(idle(kServe, {"m", "--router", "h:1", "--router-key-file", "k"}), IsEmpty());
  EXPECT_THAT(idle(kServe, {"m", "--policy", "random"}), IsEmpty()) << "Args warns of it";
  EXPECT_THAT(idle(kRoute, {"--prefill-policy", "random", "--decode-policy", "random"}),
              ElementsAre("--prefill-policy has no effect without --splitwise",
                          "--decode-policy has no effect without --splitwise"));
  EXPECT_THAT(idle(kRoute, {"--splitwise", "--policy", "random", "--decode-policy", "random"}),
              ElementsAre(HasSubstr("--policy has no effect with --splitwise")));
  EXPECT_THAT(idle(kRoute, {"--splitwise", "--decode-policy", "random"}), IsEmpty());
  EXPECT_THAT(idle(kRoute, {"--policy", "random"}), IsEmpty());
}

std::vector<route::AnnouncerSettings> settings(std::vector<std::string> words,
                                               const std::vector<AnnouncedPort>& ports = {
                                                   {.port = 8000, .metrics = 8000}}) {
  words.insert(words.begin(), "m");
  return router_settings(Args(kServe, words), ports, /*block_port=*/0);
}

TEST(RouterFlags, TheAddressThatLeadsToTheRouterIsLookedForAtEachRegistration) {
  EXPECT_FALSE(settings({"--router", "127.0.0.1:9000"}).at(0).instance.contains("host_ip"));
  EXPECT_EQ(settings({"--router", "h:1", "--host", "10.0.0.7"}).at(0).instance.at("host_ip"),
            "10.0.0.7");
  EXPECT_EQ(settings({"--router", "h:1", "--router-advertise", "me"}).at(0).instance.at("host_ip"),
            "me");
  EXPECT_THAT(settings({}), IsEmpty());
}

TEST(RouterFlags, EachPortIsRegisteredWithItsMetrics) {
  const Args args(kServe,
                  std::vector<std::string>{"m", "--ports", "0,0", "--metrics-ports", "0,0"});
  const auto ports = announced_ports(port_plan(args, 2), {81, 82, 91, 92});
  const auto all = settings({"--router", "h:1"}, ports);
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].instance.at("port"), 81);
  EXPECT_EQ(all[0].instance.at("metrics_port"), 91);
  EXPECT_EQ(all[1].instance.at("port"), 82);
  EXPECT_EQ(all[1].instance.at("metrics_port"), 92);
  EXPECT_FALSE(settings({"--router", "h:1"}).at(0).instance.contains("metrics_port"))
      << "which is the port itself";
}

TEST(RouterFlags, WhatIsNoAddressIsSaidBeforeAModelIsLoaded) {
  const auto check = [](const std::vector<std::string>& words) {
    check_router(Args(kServe, words));
  };
  EXPECT_THROW(check({"m", "--router", "http://"}), UsageError);
  EXPECT_NO_THROW(check({"m", "--router", "router:9000"}));
  EXPECT_NO_THROW(check({"m"}));
}

}  // namespace
}  // namespace skiff::apps
