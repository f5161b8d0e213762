#include "capi/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "apps/args.h"

namespace skiff::capi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Options, BecomeTheWordsOfACommandLine) {
  const auto words = option_words(
      R"({"model": "a b", "max_num_seqs": 16, "gpu_memory_utilization": 0.5, "threads": 2.0,
          "enable-prefix-caching": false, "seed": null, "served_model_name": ["x", "y"],
          "graph_optimization_config": {"use_cudagraph": false}})");
  ASSERT_TRUE(words);
  EXPECT_THAT(
      *words,
      ElementsAre("--model=a b", "--max_num_seqs=16", "--gpu_memory_utilization=0.5", "--threads=2",
                  "--enable-prefix-caching=false", "--served_model_name=x", "--served_model_name=y",
                  R"(--graph_optimization_config={"use_cudagraph":false})"));
}

TEST(Options, AreReadByTheTableOfFlags) {
  const auto words = option_words(R"({"model": "-m", "max_model_len": 512, "port": 80})");
  ASSERT_TRUE(words);
  const apps::Args args(apps::kLibrary, *words);
  EXPECT_EQ(args.text("model"), "-m");
  EXPECT_EQ(args.integer("max-model-len"), 512);
  EXPECT_EQ(args.integer("max-concurrency"), 65536);
  EXPECT_THAT(args.warnings(), ElementsAre("--port does not apply to libskiff; it is ignored"));
  const auto unknown = option_words(R"({"max_model_lem": 1})");
  ASSERT_TRUE(unknown);
  EXPECT_THROW(apps::Args(apps::kLibrary, *unknown), apps::UsageError);
}

TEST(Options, RefuseWhatIsNoOption) {
  for (const char* json : {"", "[]", "3", R"({"a b": 1})", R"({"--model": 1})", R"({"": 1})",
                           R"({"-": 1})", R"({"model=x": 1})", R"({"a": 1, "a": 2})"})
    EXPECT_FALSE(option_words(json)) << json;
  EXPECT_FALSE(option_words("{\"model\": \"" + std::string(kMaxOptions, 'x') + "\"}"));
  std::string many = R"({"served_model_name": [1)";
  for (int i = 0; i < 300; ++i) many += ",1";
  const auto refused = option_words(many + "]}");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("301 values"));
  EXPECT_EQ(refused.error().field, "served_model_name");
}

}  // namespace
}  // namespace skiff::capi
