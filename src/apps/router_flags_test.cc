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

}  // namespace
}  // namespace skiff::apps
