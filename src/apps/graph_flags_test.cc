#include "apps/graph_flags.h"

#include <gtest/gtest.h>

namespace skiff::apps {
namespace {

engine::EngineConfig config_of(std::vector<std::string> words) {
  engine::EngineConfig config;
  read_graphs(Args(kServe, words), config);
  return config;
}

TEST(GraphFlags, SwitchesOfTheDevice) {
  const engine::EngineConfig plain = config_of({});
  EXPECT_TRUE(plain.graphs);
  EXPECT_TRUE(plain.fuse_single_row);
  EXPECT_FALSE(plain.batch_invariant);
  EXPECT_TRUE(config_of({"--batch-invariant"}).batch_invariant);
  EXPECT_FALSE(config_of({"--no-fuse-single-row"}).fuse_single_row);
  EXPECT_FALSE(config_of({"--no-use-cudagraph"}).graphs);
}

}  // namespace
}  // namespace skiff::apps
