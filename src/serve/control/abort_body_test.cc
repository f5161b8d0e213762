#include "serve/control/abort_body.h"

#include <gtest/gtest.h>

namespace skiff::control {
namespace {

std::string refused(const char* body) {
  const auto wish = read_abort(OrderedJson::parse(body), "req_ids");
  return wish ? "none" : wish.error().field;
}

TEST(AbortBody, NamesRequestsOrAll) {
  const auto some = read_abort(OrderedJson::parse(R"({"req_ids": ["a", "b"]})"), "req_ids");
  ASSERT_TRUE(some);
  EXPECT_FALSE((*some).all);
  EXPECT_EQ((*some).ids, (std::vector<std::string>{"a", "b"}));
  const auto all = read_abort(OrderedJson::parse(R"({"abort_all": true})"), "req_ids");
  EXPECT_TRUE(all && (*all).all);
}

TEST(AbortBody, RefusesOthers) {
  EXPECT_EQ(refused("{}"), "req_ids");
  EXPECT_EQ(refused(R"({"abort_all": false})"), "req_ids");
  EXPECT_EQ(refused(R"({"abort_all": 1})"), "abort_all");
  EXPECT_EQ(refused(R"({"req_ids": "a"})"), "req_ids");
  EXPECT_EQ(refused(R"({"req_ids": [1]})"), "req_ids");
  EXPECT_EQ(refused(R"({"req_ids": [""]})"), "req_ids");
  EXPECT_EQ(refused("[]"), "");
}

}  // namespace
}  // namespace skiff::control
