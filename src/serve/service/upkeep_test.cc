#include "serve/service/upkeep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <future>

#include "engine/llm.h"

namespace skiff::service {
namespace {

using testing::HasSubstr;

constexpr engine::Parts kAll{.weights = true, .kv = true};
const std::string kOperators = "the server is paused";

// A small model behind a door that an operator closes while something changes.
class UpkeepTest : public testing::Test {
 protected:
  UpkeepTest() {
    engine::EngineConfig config;
    config.model = std::string(SKIFF_SOURCE_DIR) + "/tests/golden/qwen3";
    config.threads = 1;
    config.block_size = 8;
    config.quiet = true;
    config.num_blocks_override = 64;
    llm_ = engine::Llm::start(config, [](const std::vector<Event>&) {});
    upkeep_.emplace(residency_.emplace(llm_->memories()), door());
  }
  Upkeep::Door door() {
    return {.pause_reason =
                [this] {
                  const std::string now = reason_;
                  if (std::exchange(pauses_when_read_, false)) reason_ = kOperators;
                  return now;
                },
            .set_paused = [this](std::string why) { reason_ = std::move(why); },
            .is_empty = [] { return true; },
            .end_all =
                [this] {
                  if (when_ended_) when_ended_();
                  return std::vector<Aborted>{};
                }};
  }

  std::unique_ptr<engine::Llm> llm_;
  std::optional<engine::Residency> residency_;
  std::string reason_;             // empty: requests are taken
  bool pauses_when_read_ = false;  // the operator pauses after the reason was read
  std::function<void()> when_ended_;
  std::optional<Upkeep> upkeep_;
};

TEST_F(UpkeepTest, RequestsAreTakenAgainAsBefore) {
  ASSERT_TRUE(upkeep_->sleep(kAll, {}));
  EXPECT_THAT(reason_, HasSubstr("sleeps"));
  ASSERT_TRUE(upkeep_->wake({.weights = true}));
  EXPECT_THAT(reason_, HasSubstr("the KV cache is not in memory"));
  ASSERT_TRUE(upkeep_->wake({.kv = true}));
  EXPECT_EQ(reason_, "");
  ASSERT_TRUE(upkeep_->update({}, {}));
  EXPECT_EQ(reason_, "");
  reason_ = kOperators;
  ASSERT_TRUE(upkeep_->update({}, {}));
  EXPECT_EQ(reason_, kOperators);
  ASSERT_TRUE(upkeep_->sleep(kAll, {}));
  ASSERT_TRUE(upkeep_->wake(kAll));
  EXPECT_EQ(reason_, "") << "a wake-up also ends a pause from before the sleep";
}

TEST_F(UpkeepTest, APauseDuringAnUpdateStays) {
  when_ended_ = [this] { reason_ = kOperators; };
  ASSERT_TRUE(upkeep_->update({}, {}));
  EXPECT_EQ(reason_, kOperators);
  reason_.clear();
  engine::WeightsUpdate missing;
  missing.folder = "/nowhere";
  ASSERT_FALSE(upkeep_->update(missing, {}));
  EXPECT_EQ(reason_, kOperators);
  ASSERT_TRUE(upkeep_->sleep(kAll, {}));
  EXPECT_THAT(reason_, HasSubstr("sleeps"));
}

TEST_F(UpkeepTest, APauseDuringAWakeUpStays) {
  ASSERT_TRUE(upkeep_->sleep(kAll, {}));
  pauses_when_read_ = true;
  ASSERT_TRUE(upkeep_->wake(kAll));
  EXPECT_EQ(reason_, kOperators);
}

TEST_F(UpkeepTest, TheReasonIsSaidAgainWithoutWaiting) {
  std::future<void> restated;
  when_ended_ = [&] {
    restated = std::async(std::launch::async, [this] { upkeep_->restate(); });
    EXPECT_EQ(restated.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  };
  ASSERT_TRUE(upkeep_->sleep(kAll, {}));
  reason_ = kOperators;
  upkeep_->restate();
  EXPECT_THAT(reason_, HasSubstr("sleeps"));
}

}  // namespace
}  // namespace skiff::service
