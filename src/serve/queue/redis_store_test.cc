#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/load_error.h"
#include "serve/queue/redis_testing.h"
#include "serve/queue/store.h"

namespace skiff::queue {
namespace {

using Standing = Seen::Standing;

// Skips, saying so, where no Redis server is installed.
class RedisStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis_.runs()) GTEST_SKIP() << "redis-server is not installed";
    try {
      (void)make_redis_store({});
    } catch (const LoadError& absent) {
      GTEST_SKIP() << absent.what();
    }
  }
  std::unique_ptr<Store> store(const std::string& name, int min_load = 0, int shards = 1) {
    auto made = make_redis_store({.port = redis_.port(),
                                  .password = "",
                                  .topic = "t",
                                  .model = "m",
                                  .instance = name,
                                  .lease_seconds = kLease,
                                  .min_load = min_load,
                                  .load_shards = shards});
    EXPECT_TRUE(made->connect());
    EXPECT_TRUE(made->beat(0, {}));
    return made;
  }
  static Taken take(Store& store) {
    auto taken = store.take();
    EXPECT_TRUE(taken && *taken) << (taken ? "nothing" : taken.error().what);
    return taken && *taken ? **taken : Taken{};
  }
  static void pass(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  static constexpr double kLease = 1.6;
  testing::RedisServer redis_;
};

TEST_F(RedisStoreTest, ARequestGoesToAnotherAndItsAnswerComesBack) {
  const auto a = store("a"), b = store("b");
  ASSERT_TRUE(a->put("a:1", "bytes", 1));
  EXPECT_EQ(a->look(std::vector<std::string>{"a:1"})->front().standing, Standing::kWaits);
  const Taken taken = take(*b);
  EXPECT_EQ(taken.lease, (Lease{"a:1", 1}));
  EXPECT_EQ(taken.request, "bytes");
  EXPECT_EQ(a->look(std::vector<std::string>{"a:1"})->front().standing, Standing::kHeld);
  const std::vector<Outgoing> pieces{{taken.lease, "P1", false}, {taken.lease, "P2", true}};
  EXPECT_EQ(*b->send(pieces), (std::vector<bool>{true, true}));
  EXPECT_EQ(*a->receive(), (std::vector<std::string>{"T1 a:1", "P1", "P2"}));
  EXPECT_EQ(a->look(std::vector<std::string>{"a:1"})->front().standing, Standing::kGone);
  EXPECT_FALSE((*b->take()).has_value());
}

TEST_F(RedisStoreTest, OnesOwnRequestsComeFirstAndInOrder) {
  const auto a = store("a"), b = store("b");
  ASSERT_TRUE(b->put("b:1", "other", 9));
  for (const char* id : {"a:1", "a:2", "a:2"}) ASSERT_TRUE(a->put(id, "own", 9));
  EXPECT_EQ(take(*a).lease, (Lease{"a:1", 0}));
  EXPECT_EQ(take(*a).lease, (Lease{"a:2", 0}));
  EXPECT_EQ(take(*a).lease, (Lease{"b:1", 1}));
}

TEST_F(RedisStoreTest, ALeaseThatExpiredIsFencedOff) {
  const auto a = store("a"), b = store("b"), c = store("c");
  ASSERT_TRUE(a->put("a:1", "bytes", 1));
  const Lease first = take(*b).lease;
  EXPECT_EQ(*a->call_back(first), 0) << "it has not expired";
  pass(kLease * 1.5);
  ASSERT_TRUE(a->beat(1, {}));
  ASSERT_TRUE(c->beat(0, {}));
  EXPECT_EQ(a->look(std::vector<std::string>{"a:1"})->front().standing, Standing::kExpired);
  EXPECT_EQ(*a->call_back(first), 2);
  EXPECT_EQ(*a->call_back(first), 0) << "once";
  const Taken again = take(*c);
  EXPECT_EQ(again.lease.number, 3);
  EXPECT_EQ(again.request, "bytes");
  // The first one goes on where it stood still.
  const std::vector<Outgoing> late{{first, "late", true}};
  EXPECT_EQ(*b->send(late), std::vector<bool>{false});
  EXPECT_EQ(*b->beat(0, {&first, 1}), std::vector<bool>{false});
  const std::vector<Outgoing> good{{again.lease, "good", true}};
  EXPECT_EQ(*c->send(good), std::vector<bool>{true});
  const auto heard = *a->receive();
  EXPECT_EQ(heard, (std::vector<std::string>{"T1 a:1", "T3 a:1", "good"}));
  EXPECT_EQ(b->receive()->back(), "S1 a:1");
}

TEST_F(RedisStoreTest, SignsOfLifeKeepALease) {
  const auto a = store("a"), b = store("b");
  ASSERT_TRUE(a->put("a:1", "bytes", 1));
  const Lease lease = take(*b).lease;
  for (int i = 0; i < 6; ++i) {
    pass(kLease / 4);
    ASSERT_TRUE(a->beat(1, {}));
    EXPECT_EQ(*b->beat(0, {&lease, 1}), std::vector<bool>{true});
    EXPECT_EQ(a->look(std::vector<std::string>{"a:1"})->front().standing, Standing::kHeld);
  }
}

TEST_F(RedisStoreTest, WhatIsGivenBackComesFirst) {
  const auto a = store("a"), b = store("b");
  for (const char* id : {"a:1", "a:2"}) ASSERT_TRUE(a->put(id, id, 2));
  const Lease lease = take(*b).lease;
  ASSERT_TRUE(b->give_back(lease));
  EXPECT_EQ(take(*b).lease, (Lease{"a:1", 3}));
  EXPECT_EQ(*a->receive(), (std::vector<std::string>{"T1 a:1", "B2 a:1", "T3 a:1"}));
}

TEST_F(RedisStoreTest, WhatIsDroppedIsStoppedWhereItIsComputed) {
  const auto a = store("a"), b = store("b");
  for (const char* id : {"a:1", "a:2"}) ASSERT_TRUE(a->put(id, id, 2));
  const Lease lease = take(*b).lease;
  const std::vector<std::string> both{"a:1", "a:2"};
  ASSERT_TRUE(a->drop(both));
  EXPECT_EQ(*b->receive(), std::vector<std::string>{"S1 a:1"});
  EXPECT_FALSE((*b->take()).has_value());
  EXPECT_EQ(*b->beat(0, {&lease, 1}), std::vector<bool>{false});
}

TEST_F(RedisStoreTest, OnlyTheLoadedAreTakenFromAndTheIdleAreRung) {
  const auto a = store("a", 3, 4), b = store("b", 3, 4);
  EXPECT_FALSE((*b->take()).has_value());
  ASSERT_TRUE(a->put("a:1", "bytes", 2));
  EXPECT_EQ(*b->receive(), std::vector<std::string>{"R"});
  EXPECT_FALSE((*b->take()).has_value()) << "two requests are fewer than three";
  ASSERT_TRUE(a->beat(3, {}));
  EXPECT_EQ(take(*b).lease.id, "a:1");
}

TEST_F(RedisStoreTest, RequestsOfTheDeadAreForgotten) {
  const auto b = store("b");
  {
    const auto a = store("a");
    for (const char* id : {"a:1", "a:2"}) ASSERT_TRUE(a->put(id, id, 2));
  }
  const Lease lease = take(*b).lease;
  pass(kLease * 1.5);
  EXPECT_EQ(*b->beat(0, {&lease, 1}), std::vector<bool>{false}) << "nobody awaits the answer";
  EXPECT_FALSE((*b->take()).has_value());
}

TEST_F(RedisStoreTest, AnotherModelOrTopicSharesNothing) {
  const auto a = store("a");
  ASSERT_TRUE(a->put("a:1", "bytes", 5));
  const auto other = make_redis_store({.port = redis_.port(),
                                       .password = "",
                                       .topic = "t",
                                       .model = "another",
                                       .instance = "b",
                                       .min_load = 0});
  ASSERT_TRUE(other->connect());
  EXPECT_FALSE((*other->take()).has_value());
}

TEST_F(RedisStoreTest, ErrorsSayWhetherAnotherTryHelps) {
  const auto wrong = make_redis_store({.port = redis_.port(), .db = 99, .password = ""});
  const Status refused = wrong->connect();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid) << refused.error().what;
  const auto a = store("a");
  redis_.kill();
  EXPECT_FALSE(a->put("a:1", "bytes", 1));
  EXPECT_FALSE(a->receive());
  const Status gone = a->connect();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kExhausted) << gone.error().what;
  redis_.start();
  EXPECT_TRUE(a->connect());
  EXPECT_TRUE(a->put("a:1", "bytes", 1));
}

}  // namespace
}  // namespace skiff::queue
