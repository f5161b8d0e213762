#include "apps/vllm_node_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/parallel_flags.h"

namespace skiff::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

const NodeDuty kAlone{.place = {}, .share = {.replicas = 2}, .all_replicas = 2, .first = {}};
// Node 1 of two with two replicas each, and of two that share one model.
const NodeDuty kSecond{.place = {.node = 1, .nodes = 2, .source = "--ips"},
                       .share = {.replicas = 2},
                       .all_replicas = 4,
                       .first = "10.0.0.1"};
const NodeDuty kSharing{.place = {.node = 1, .nodes = 2, .source = "--ips"},
                        .share = {.replicas = 1, .spread = true},
                        .all_replicas = 1,
                        .first = "10.0.0.1"};

std::string refusal(const NodeDuty& duty, const Words& words) {
  try {
    check_vllm_node_flags(Args(kServe, words), duty);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(VllmNodeFlags, WhatAgreesIsAccepted) {
  EXPECT_EQ(refusal(kAlone, {}), "");
  EXPECT_EQ(refusal(kAlone, {"-dpl", "2", "--data-parallel-start-rank", "0"}), "");
  EXPECT_EQ(refusal(kAlone, {"-dpa", "10.0.0.9", "-dpp", "13345", "-dpb", "ray"}), "");
  EXPECT_EQ(refusal(kSecond, {"-dpl", "2", "-dpr", "2", "-dpa", "10.0.0.1", "-dpb", "mp"}), "");
  EXPECT_EQ(refusal(kSharing, {"--headless", "-dpr", "0"}), "");
}

TEST(VllmNodeFlags, WhatContradictsIsRefusedWithTheWayOut) {
  EXPECT_THAT(refusal(kSecond, {"--data-parallel-size-local", "3"}),
              AllOf(HasSubstr("--data-parallel-size-local is 3"),
                    HasSubstr("2 of --data-parallel-size 4"), HasSubstr("skiff route")));
  EXPECT_THAT(refusal(kSecond, {"--data-parallel-start-rank", "1"}),
              AllOf(HasSubstr("--data-parallel-start-rank is 1"), HasSubstr("this node is 2"),
                    HasSubstr("--node-rank")));
  EXPECT_THAT(refusal(kSecond, {"--data-parallel-address", "10.0.0.2"}),
              AllOf(HasSubstr("is 10.0.0.2, but the first node is 10.0.0.1"), HasSubstr("--ips")));
  EXPECT_THAT(refusal(kSecond, {"--headless"}), HasSubstr("skiff route"));
  EXPECT_THAT(refusal(kAlone, {"--headless"}), HasSubstr("answers HTTP"));
  NodeDuty first = kSharing;
  first.place.node = 0;
  EXPECT_THAT(refusal(first, {"--headless"}), HasSubstr("this is node 0"));
  EXPECT_EQ(refusal(first, {"--no-headless"}), "");
}

TEST(VllmNodeFlags, OneStageOnly) {
  for (const Commands command : {kServe, kPredict, kBench, kInspect}) {
    EXPECT_EQ(replicas_of(Args(command, Words{"-pp", "1"})), 1);
    EXPECT_THROW(replicas_of(Args(command, Words{"-pp", "2"})), UsageError);
  }
  try {
    refuse_stages(Args(kServe, Words{"--pipeline-parallel-size", "2", "-tp", "4"}));
    ADD_FAILURE() << "two stages";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--pipeline-parallel-size is 2"),
                                    HasSubstr("--tensor-parallel-size 8")));
  }
}

TEST(VllmNodeFlags, SleepModeIsTheMemoryThatCanBeGivenBack) {
  EXPECT_TRUE(Args(kServe, Words{"--enable-sleep-mode"}).on("dynamic-load-weight"));
}

}  // namespace
}  // namespace skiff::apps
