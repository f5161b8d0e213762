#include "apps/scheduler_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace skiff::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kReserve = "FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";
const std::string kDecay = "FD_RESERVE_DECAY_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";
const std::string kLeast = "FD_RESERVE_MIN_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";

struct Applied {
  engine::EngineConfig config;
  std::vector<std::string> warnings;
  std::string refusal;
};

Applied apply(std::vector<std::string> words, std::map<std::string, std::string> variables = {}) {
  const Args args(kServe, words);
  Applied out;
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  try {
    out.warnings = apply_scheduler_flags(args, environment, out.config);
  } catch (const UsageError& e) {
    out.refusal = e.what();
  }
  return out;
}

TEST(SchedulerFlags, NothingAskedNothingSaid) {
  const Applied plain = apply({});
  EXPECT_THAT(plain.warnings, IsEmpty());
  EXPECT_EQ(plain.config.policy.reserve, 16);
  EXPECT_EQ(plain.config.policy.reserve_decay, 0.025);
  EXPECT_EQ(plain.config.policy.reserve_min, 0);
  EXPECT_THAT(apply({}, {{"ENABLE_V1_KVCACHE_SCHEDULER", "1"}}).warnings, IsEmpty());
  EXPECT_THAT(apply({}, {{"ENABLE_V1_KVCACHE_SCHEDULER", ""}}).warnings, IsEmpty());
}

// Only where somebody waits for tokens has a step an aim that nobody asked for.
TEST(SchedulerFlags, AStepTimeIsGivenInMilliseconds) {
  const auto seconds = [](Commands command, std::vector<std::string> words) {
    const Args args(command, words);
    engine::EngineConfig config;
    apply_scheduler_flags(
        args, [](const char*) -> const char* { return nullptr; }, config);
    return config.policy.step_seconds;
  };
  EXPECT_EQ(seconds(kServe, {}), 0);
  EXPECT_EQ(seconds(kChat, {}), 0);
  EXPECT_TRUE(std::isinf(seconds(kPredict, {})));
  EXPECT_TRUE(std::isinf(seconds(kBench, {})));
  for (const Commands command : {kServe, kChat, kPredict, kBench})
    EXPECT_EQ(seconds(command, {"--step-time", "25"}), 0.025);
}

TEST(SchedulerFlags, ThePolicyIsWhatTheFlagsSay) {
  const auto policy =
      apply({"--priority-ageing", "7", "--max-num-partial-prefills", "5",
             "--max-long-partial-prefills", "3", "--long-prefill-token-threshold", "99"})
          .config.policy;
  EXPECT_EQ(policy.ageing, 7);
  EXPECT_EQ(policy.max_partial, 5);
  EXPECT_EQ(policy.max_long_partial, 3);
  EXPECT_EQ(policy.long_prompt, 99);
}

TEST(SchedulerFlags, OlderWishesAreMappedWithOneWarningEach) {
  const Applied out = apply({"--kv-cache-ratio", "0.6", "--static_decode_blocks", "3"},
                            {{"ENABLE_V1_KVCACHE_SCHEDULER", "0"}});
  EXPECT_THAT(out.warnings, ElementsAre(HasSubstr("one pool of blocks"),
                                        HasSubstr("--kv-cache-ratio 0.6: there is one pool"),
                                        HasSubstr("3 blocks for each running sequence")));
  EXPECT_EQ(out.config.policy.reserve_min, 3);
  EXPECT_EQ(out.config.policy.reserve, 16);
  EXPECT_EQ(apply({"--static-decode-blocks", "40"}).config.policy.reserve, 40);
  // The parser does not warn about these flags a second time.
  EXPECT_THAT(Args(kServe, std::vector<std::string>{"--kv-cache-ratio=0.6"}).warnings(), IsEmpty());
}

TEST(SchedulerFlags, TheReserveOfTheEnvironment) {
  const Applied out = apply({}, {{kReserve, "8"}, {kDecay, "0.5"}, {kLeast, "2"}});
  EXPECT_EQ(out.refusal, "");
  EXPECT_EQ(out.config.policy.reserve, 8);
  EXPECT_EQ(out.config.policy.reserve_decay, 0.5);
  EXPECT_EQ(out.config.policy.reserve_min, 2);
}

TEST(SchedulerFlags, RefusalsNameValueAndRange) {
  EXPECT_EQ(apply({}, {{"ENABLE_V1_KVCACHE_SCHEDULER", "yes"}}).refusal,
            "ENABLE_V1_KVCACHE_SCHEDULER is \"yes\"; it must be 0 or 1");
  for (const char* bad : {"-1", "x", "1e30", "nan", "3 "})
    EXPECT_THAT(apply({}, {{kReserve, bad}}).refusal,
                testing::AllOf(HasSubstr(kReserve), HasSubstr(bad), HasSubstr("[0, 16777216]")));
  EXPECT_THAT(apply({}, {{kReserve, "2"}, {kLeast, "3"}}).refusal, HasSubstr("[0, 2]"));
  EXPECT_THAT(
      apply({"--max-num-partial-prefills", "2", "--max-long-partial-prefills", "3"}).refusal,
      HasSubstr("must be in [1, 2]"));
}

std::string admission_refusal(std::vector<std::string> words) {
  try {
    check_admission_flags(Args(kServe, words));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(SchedulerFlags, AgeingIsServesOwn) {
  EXPECT_EQ(Args(kServe, std::vector<std::string>{}).integer("priority-ageing"),
            engine::EngineConfig{}.policy.ageing);
  for (const char* bad : {"-1", "2e9", "x", ""})
    EXPECT_THROW(Args(kServe, std::vector<std::string>{"--priority-ageing", bad}), UsageError);
  const Args elsewhere(kPredict, std::vector<std::string>{"--priority-ageing", "5"});
  EXPECT_THAT(elsewhere.warnings(), ElementsAre(HasSubstr("--priority-ageing")));
}

TEST(SchedulerFlags, AdmissionBoundsThatContradict) {
  EXPECT_EQ(admission_refusal({}), "");
  EXPECT_EQ(admission_refusal({"--max-waiting-time", "5", "--request-timeout", "5"}), "");
  EXPECT_EQ(admission_refusal({"--max-waiting-time", "5"}), "");
  EXPECT_THAT(admission_refusal({"--max-waiting-time", "0"}), HasSubstr("[1, 604800]"));
  EXPECT_THAT(admission_refusal({"--max-waiting-time", "9", "--request-timeout", "5"}),
              HasSubstr("in [1, 5]"));
  EXPECT_THAT(admission_refusal({"--max-waiting-time", "-2"}), HasSubstr("[-1, 604800]"));
  EXPECT_THAT(admission_refusal({"--max-waiting-tokens", "-1"}), HasSubstr("--max-waiting-tokens"));
  EXPECT_THAT(admission_refusal({"--request-timeout", "-1"}), HasSubstr("--request-timeout"));
  EXPECT_THAT(admission_refusal({"--watchdog-timeout", "1e9"}), HasSubstr("--watchdog-timeout"));
}

}  // namespace
}  // namespace skiff::apps
