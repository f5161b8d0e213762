#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/commands.h"
#include "base/load_error.h"

namespace skiff::apps {
namespace {

std::string refusal(const std::vector<std::string>& words) {
  try {
    run_stop(Args(kStop, words));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Stop, SecondsAreGivenOnce) {
  const std::vector<std::string> nowhere = {"--pid-file", "/nowhere/skiff.pid"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), nowhere.begin(), nowhere.end());
    return refusal(words);
  };
  EXPECT_THAT(with({"5", "--timeout", "60"}), testing::HasSubstr("--timeout: leave one out"));
  EXPECT_THAT(with({"5", "6"}), testing::HasSubstr("one number of seconds"));
  EXPECT_THAT(with({"soon"}), testing::HasSubstr("not \"soon\""));
  EXPECT_THROW(with({"5"}), LoadError) << "nothing was started there";
  EXPECT_THROW(with({"--timeout", "60"}), LoadError);
}

}  // namespace
}  // namespace skiff::apps
