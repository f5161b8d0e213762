#include "fetch/name_searches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "fetch/name_server_testing.h"

namespace skiff::fetch {
namespace {

using testing::HasSubstr;

// Hosts of the domain "slow" are those of the server that hangs.
FindAddresses partly(Hanging& server) {
  return [hang = server.find()](const std::string& host) -> Result<Addresses> {
    if (host.ends_with(".slow")) return hang(host);
    return Addresses{"10.0.0.2"};
  };
}

// Waits for one search.
struct Waiter {
  Waiter(NameSearches& names, const std::string& host)
      : waiting(names.begin(host, [answer = answer](const Result<Addresses>& found) {
          answer->set_value(found);
        })) {}
  bool called() const { return future.wait_for(std::chrono::seconds(0)) == ready; }

  static constexpr auto ready = std::future_status::ready;
  const std::shared_ptr<std::promise<Result<Addresses>>> answer =
      std::make_shared<std::promise<Result<Addresses>>>();
  std::future<Result<Addresses>> future = answer->get_future();
  Result<NameSearches::Waiting> waiting;
};

TEST(NameSearches, OneThatHangsKeepsNoOtherWaiting) {
  Hanging server;
  NameSearches names(2, partly(server));
  Waiter slow(names, "a.slow"), too(names, "a.slow");
  for (int i = 0; i < 3; ++i) {
    Waiter quick(names, "b.quick");
    EXPECT_EQ(*quick.future.get(), Addresses{"10.0.0.2"});
  }
  EXPECT_FALSE(slow.called());
  server.let_go();
  EXPECT_EQ(*slow.future.get(), Addresses{"10.0.0.1"});
  EXPECT_EQ(*too.future.get(), Addresses{"10.0.0.1"});
  EXPECT_EQ(server.asked(), 1);
}

TEST(NameSearches, HaveABound) {
  Hanging server;
  NameSearches names(2, partly(server));
  Waiter one(names, "a.slow"), other(names, "b.slow");
  EXPECT_TRUE(Waiter(names, "b.slow").waiting);
  const Waiter refused(names, "c.quick");
  ASSERT_FALSE(refused.waiting);
  EXPECT_EQ(refused.waiting.error().code, Code::kExhausted);
  EXPECT_THAT(refused.waiting.error().what, HasSubstr("c.quick: the system still searches for"));
  server.let_go();
  one.future.wait();
  other.future.wait();
  EXPECT_TRUE(Waiter(names, "c.quick").waiting);
}

TEST(NameSearches, WhoHasLetGoIsNotCalled) {
  Hanging server;
  NameSearches names(1, partly(server));
  Waiter gone(names, "a.slow"), stays(names, "a.slow");
  ASSERT_TRUE(gone.waiting);
  gone.waiting->reset();
  server.let_go();
  stays.future.wait();
  EXPECT_FALSE(gone.called());
}

TEST(NameSearches, MayGoBeforeTheirThreads) {
  Hanging server;
  const auto held = std::make_shared<int>();  // by each thread
  auto names = std::make_unique<NameSearches>(
      1, [held, hang = server.find()](const std::string& host) { return hang(host); });
  Waiter waiter(*names, "a.slow");
  names.reset();
  EXPECT_EQ(held.use_count(), 2);
  server.let_go();
  while (held.use_count() > 1) std::this_thread::yield();
  EXPECT_FALSE(waiter.called());
}

}  // namespace
}  // namespace skiff::fetch
