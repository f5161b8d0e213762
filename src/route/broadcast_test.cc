#include "route/broadcast.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace skiff::route {
namespace {

std::string ended(const char* id) {
  return Json{{"result", {{"aborted", Json::array({{{"req_id", id}}})}}}}.dump();
}

TEST(Broadcast, JoinsWhatAllHaveEnded) {
  const auto answer = joined_answer("id", {{"http://a:1", 200, ended("x")},
                                           {"http://b:1", 200, ended("y")},
                                           {"http://c:1", 0, "no connection"},
                                           {"http://d:1", 401, "{}"}});
  EXPECT_EQ(answer.status, 200);
  const auto body = parse_json(answer.body);
  ASSERT_TRUE(body);
  const Json& result = (*body)["result"];
  EXPECT_EQ(result["aborted"], Json::parse(R"([{"req_id": "x"}, {"req_id": "y"}])"));
  ASSERT_EQ(result["failed"].size(), 2u);
  EXPECT_EQ(result["failed"][0]["why"], "no connection");
  EXPECT_EQ(result["failed"][1]["url"], "http://d:1");
}

TEST(Broadcast, ARefusalOfAllIsPassedOn) {
  const auto answer =
      joined_answer("id", {{"http://a:1", 0, "gone"}, {"http://b:1", 401, "the refusal"}});
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.body, "the refusal");
  EXPECT_EQ(joined_answer("id", {{"http://a:1", 0, "gone"}}).status, 502);
}

TEST(Broadcast, EmptyAnswersStayEmpty) {
  const auto answer = joined_answer("id", {{"http://a:1", 200, ""}, {"http://b:1", 200, ""}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(joined_answer("id", {{"http://a:1", 200, "not JSON"}}).status, 200);
}

}  // namespace
}  // namespace skiff::route
