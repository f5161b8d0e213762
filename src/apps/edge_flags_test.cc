// Invalid keys, and more connections than the open-file limit allows.
#include "apps/edge_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "apps/open_files.h"
#include "base/load_error.h"

namespace skiff::apps {
namespace {

Args parse(const std::vector<std::string>& words) { return Args(kServe, words); }

class ApiKeyFlags : public testing::Test {
 protected:
  ~ApiKeyFlags() override { unsetenv("FD_API_KEY"); }
};

TEST_F(ApiKeyFlags, AVariableWithoutAKeyRefusesTheStart) {
  const Args args = parse({"model"});
  for (const char* empty : {"", ",", ",,,"}) {
    setenv("FD_API_KEY", empty, 1);
    const auto keys = api_keys(args);
    ASSERT_FALSE(keys) << '"' << empty << '"';
    EXPECT_THAT(keys.error().what, testing::HasSubstr("FD_API_KEY"));
    EXPECT_THAT(keys.error().what, testing::HasSubstr("unset it"));
    serve::ServerConfig config;
    EXPECT_THROW(apply_edge_flags(args, &config), LoadError);
  }
  setenv("FD_API_KEY", " ", 1);
  EXPECT_FALSE(api_keys(args));
  setenv("FD_API_KEY", ",a,,b,", 1);
  EXPECT_EQ(*api_keys(args), (std::vector<std::string>{"a", "b"}));
  unsetenv("FD_API_KEY");
  EXPECT_TRUE(api_keys(args)->empty());
}

TEST_F(ApiKeyFlags, AFlagWithoutAKeyRefusesTheStart) {
  EXPECT_FALSE(api_keys(parse({"model", "--api-key", ""})));
  EXPECT_FALSE(api_keys(parse({"model", "--api-key-file", "/dev/null"})));
  // A flag overrules the variable.
  setenv("FD_API_KEY", "", 1);
  EXPECT_EQ(*api_keys(parse({"model", "--api-key", "a"})), std::vector<std::string>{"a"});
}

TEST(OpenFiles, ConnectionsFitTheLimitOrAreFewer) {
  EXPECT_EQ(connections_that_fit(4096, 16, 1 << 20), 4096);
  EXPECT_EQ(connections_that_fit(4096, 16, 1024), 1024 - 32 - 16);
  EXPECT_EQ(connections_that_fit(4096, 16, 49), 1);
  EXPECT_EQ(connections_that_fit(5, 16, 1024), 5);
  EXPECT_EQ(connections_that_fit(4096, 16, UINT64_MAX), 4096);
  EXPECT_THROW(connections_that_fit(4096, 16, 48), LoadError);
}

}  // namespace
}  // namespace skiff::apps
