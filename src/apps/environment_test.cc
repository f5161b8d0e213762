#include "apps/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace skiff::apps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

EnvironmentFlags flags_of(const std::map<std::string, std::string>& environment) {
  return serve_environment([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, PortsAndTheirOlderNames) {
  EXPECT_THAT(flags_of({{"SERVICE_HTTP_PORT", "9965"}, {"SERVICE_GRPC_PORT", "8811"}}).words,
              ElementsAre("--port=9965", "--grpc-port=8811"));
  EXPECT_THAT(flags_of({{"PUSH_MODE_HTTP_PORT", "1"}, {"SERVICE_HTTP_PORT", "2"}}).words,
              ElementsAre("--port=2"));
  EXPECT_THAT(flags_of({{"GRPC_PORT", "8811"}}).notes,
              ElementsAre("--grpc-port 8811 comes from $GRPC_PORT"));
  EXPECT_THAT(flags_of({{"SERVICE_HTTP_PORT", "-1"}, {"SERVICE_GRPC_PORT", ""}}).words, IsEmpty());
}

TEST(Environment, AValueThatNoFlagTakesIsSaidWithItsVariable) {
  const EnvironmentFlags linked =
      flags_of({{"SERVICE_HTTP_PORT", "9965"}, {"GRPC_PORT", "tcp://10.96.0.12:50051"}});
  try {
    check_environment(kServe, linked);
    FAIL() << "it was taken";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("\"tcp://10.96.0.12:50051\""));
    EXPECT_THAT(e.what(), testing::HasSubstr("$GRPC_PORT"));
  }
  EXPECT_NO_THROW(check_environment(kServe, flags_of({{"SERVICE_HTTP_PORT", "9965"}})));
}

TEST(Environment, CommonNamesCountOnlyBesideAPort) {
  const std::map<std::string, std::string> common{{"BATCH_SIZE", "4"}, {"MAX_SEQ_LEN", "64"}};
  EXPECT_THAT(flags_of(common).words, IsEmpty());
  auto with_port = common;
  with_port["SERVICE_HTTP_PORT"] = "9965";
  with_port["BLOCK_RATIO"] = "0.5";
  EXPECT_THAT(flags_of(with_port).words,
              ElementsAre("--port=9965", "--max-model-len=64", "--max-num-seqs=4"));
  EXPECT_EQ(flags_of(with_port).ignored, "BLOCK_RATIO");
  EXPECT_THAT(flags_of({{"DISABLE_STREAMING", "1"}}).words, ElementsAre("--disable-streaming=1"));
}

}  // namespace
}  // namespace skiff::apps
