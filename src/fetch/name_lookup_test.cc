// Searches for names that come to no end.
#include "fetch/name_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/seconds.h"
#include "fetch/client.h"
#include "fetch/name_server_testing.h"

namespace skiff::fetch {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr double kSoon = 0.05, kLong = 60;  // seconds

TEST(NameLookup, GivesUpInTimeAndHasOneThread) {
  Hanging server;
  NameLookup names(server.find());
  const auto began = Clock::now();
  for (int i = 0; i < 3; ++i) {
    const auto found = names.find("a.example", kSoon);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::kExhausted);
    EXPECT_THAT(found.error().what, HasSubstr("a.example"));
  }
  const auto other = names.find("b.example", kLong);  // at once
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, HasSubstr("still searches for a.example"));
  EXPECT_LT(seconds_since(began), kLong / 2);
  EXPECT_EQ(server.asked(), 1);
  server.let_go();
  EXPECT_EQ(*names.find("a.example", kLong), Addresses{"10.0.0.1"});
  EXPECT_EQ(*names.find("b.example", kLong), Addresses{"10.0.0.1"});
}

TEST(NameLookup, MayGoBeforeItsThread) {
  Hanging server;
  {
    NameLookup names(server.find());
    EXPECT_FALSE(names.find("a.example", kSoon));
  }
  server.let_go();
}

TEST(NameLookup, DigitsNeedNoSearch) {
  Hanging server;
  NameLookup names(server.find());
  EXPECT_EQ(*names.find("127.0.0.1", 0), Addresses{"127.0.0.1"});
  EXPECT_EQ(*names.find("::1", 0), Addresses{"::1"});
  EXPECT_EQ(server.asked(), 0);
}

TEST(NameLookup, TheSystemKnowsThisMachine) {
  const auto found = NameLookup().find("localhost", kLong);
  ASSERT_TRUE(found) << found.error().what;
  for (const std::string& address : *found)
    EXPECT_TRUE(address == "127.0.0.1" || address == "::1") << address;
  EXPECT_FALSE(NameLookup().find("no such name", kLong));
}

TEST(Client, ANameThatIsNotFoundInTimeIsTrouble) {
  Hanging server;
  Client client({.connect_seconds = kSoon}, server.find());
  const auto answer = client.fetch({.url = *parse_url("http://a.example/x")}, 100);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kExhausted);
  EXPECT_THAT(answer.error().what, HasSubstr("GET http://a.example/x: the name a.example"));
}

}  // namespace
}  // namespace skiff::fetch
