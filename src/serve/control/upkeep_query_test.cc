#include "serve/control/upkeep_query.h"

#include <gtest/gtest.h>

namespace skiff::control {
namespace {

UpkeepQuery read(std::string_view query) {
  const auto read = read_upkeep_query(query);
  EXPECT_TRUE(read) << query;
  return read ? *read : UpkeepQuery{.parts = {}};
}

std::string refused(std::string_view query) {
  const auto read = read_upkeep_query(query);
  return read ? "none" : read.error().field;
}

TEST(UpkeepQuery, TagsNameParts) {
  const engine::Parts weights{.weights = true}, kv{.kv = true}, all{.weights = true, .kv = true};
  EXPECT_EQ(read("").parts, all);
  EXPECT_EQ(read("level=1").parts, all);
  EXPECT_EQ(read("tags=weight").parts, weights);
  EXPECT_EQ(read("tags=weights").parts, weights);
  EXPECT_EQ(read("tags=kv_cache").parts, kv);
  EXPECT_EQ(read("tags=weight%2Ckv_cache").parts, all);
  EXPECT_EQ(read("tags=kv_cache&tags=weight").parts, all);
}

TEST(UpkeepQuery, RequestsEndAtOnceUnlessTheyMayFinish) {
  EXPECT_FALSE(read("").ending.waits);
  EXPECT_FALSE(read("mode=abort&timeout=3").ending.waits);
  EXPECT_TRUE(read("mode=wait").ending.waits);
  EXPECT_EQ(read("mode=wait").ending.seconds, 60);
  EXPECT_EQ(read("timeout=0.5&mode=wait").ending.seconds, 0.5);
}

TEST(UpkeepQuery, WhatIsWrongIsNamed) {
  EXPECT_EQ(refused("tags=gradients"), "tags");
  EXPECT_EQ(refused("tags="), "tags");
  EXPECT_EQ(refused("tags=%zz"), "tags");
  EXPECT_EQ(refused("level=0"), "level");
  EXPECT_EQ(refused("mode=keep"), "mode");
  EXPECT_EQ(refused("timeout=-1"), "timeout");
  EXPECT_EQ(refused("timeout=nan"), "timeout");
  EXPECT_EQ(refused("timeout=5s"), "timeout");
  EXPECT_EQ(refused("wait=1"), "wait");
}

TEST(UpdateBody, NamesFolderVersionAndChecksum) {
  const auto all = read_update(OrderedJson::parse(
      R"({"version": "v2", "path": "/a", "verify_checksum": true, "checksum": "00"})"));
  ASSERT_TRUE(all);
  EXPECT_EQ((*all).version, "v2");
  EXPECT_EQ((*all).folder, "/a");
  EXPECT_TRUE((*all).digest);
  EXPECT_EQ((*all).expected, "00");
  const auto none = read_update(OrderedJson::parse(R"({"version": 7, "path": null})"));
  ASSERT_TRUE(none);
  EXPECT_EQ((*none).version, "7");
  EXPECT_TRUE((*none).folder.empty() && !(*none).digest && (*none).expected.empty());
  for (const char* body : {R"({"version": []})", R"({"path": 1.5})", R"({"verify_checksum": 1})",
                           R"({"folder": "/a"})", "[]"})
    EXPECT_FALSE(read_update(OrderedJson::parse(body))) << body;
}

}  // namespace
}  // namespace skiff::control
