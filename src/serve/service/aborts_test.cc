// Requests that the operator ends: which are meant, what they hear, and what is told of them.
#include "serve/service/aborts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

using testing::ElementsAre;

TEST(AbortNamesTest, PrefixesAndNumbersMayBeThere) {
  AbortNames names({"chatcmpl-a", "b", "cmpl-c_1", "job_1"});
  for (const char* meant : {"chatcmpl-a", "a", "chatcmpl-b", "cmpl-b", "b", "job_1", "c_1"})
    EXPECT_TRUE(names.has(meant)) << meant;
  for (const char* other : {"chatcmpl-c", "job", "ab", "", "a_0"})
    EXPECT_FALSE(names.has(other)) << other;
}

TEST(AbortNamesTest, ANumberNamesASequenceUnlessItIsPartOfAName) {
  AbortNames names({"chatcmpl-c_1", "job_1", "x_", "_0"});
  EXPECT_TRUE(names.has("job_1"));
  EXPECT_FALSE(names.has("job"));
  EXPECT_FALSE(names.has_child("job", 8)) << "job_1 is a request of its own";
  EXPECT_TRUE(names.has_child("cmpl-c", 2));
  EXPECT_FALSE(names.has_child("c", 1)) << "it has no second sequence";
  EXPECT_FALSE(names.has_child("x", 9));
}

struct Watched : RequestObserver {
  void started(const RequestTag&) override { ++open; }
  void ended(RequestSummary summary) override {
    --open;
    const std::lock_guard lock(mutex);
    summaries.push_back(std::move(summary));
  }
  Counts counts() const override { return {}; }
  std::atomic<int> open{0};
  std::mutex mutex;
  std::vector<RequestSummary> summaries;
};

class AbortsTest : public testing::Test {
 protected:
  struct Heard {
    std::mutex mutex;
    std::vector<Reply> replies;
  };

  std::shared_ptr<Heard> start(const std::string& id, int n = 1) {
    Request request;
    request.input = std::string("abc");
    request.n = n;
    request.ignore_eos = true;
    Prepared prepared = *service_.prepare(std::move(request));
    prepared.tag = std::make_shared<RequestTag>(RequestTag{.id = id, .route = "/r"});
    auto heard = std::make_shared<Heard>();
    service_.start(std::move(prepared), [heard](Reply reply) {
      const std::lock_guard lock(heard->mutex);
      heard->replies.push_back(std::move(reply));
    });
    return heard;
  }
  static size_t failures(Heard& heard, Refusal why) {
    const std::lock_guard lock(heard.mutex);
    return static_cast<size_t>(std::ranges::count_if(heard.replies, [&](const Reply& reply) {
      return reply.finish == Finish::kExhausted && reply.refusal == why;
    }));
  }
  static std::vector<std::string> ids(const std::vector<Aborted>& aborted) {
    std::vector<std::string> all;
    all.reserve(aborted.size());
    for (const Aborted& one : aborted) all.push_back(one.id);
    std::ranges::sort(all);
    return all;
  }
  bool running(int count) const {
    for (int i = 0; i < 2000 && engine_.running() != count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine_.running() == count;
  }

  std::shared_ptr<Watched> watched_ = std::make_shared<Watched>();
  std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
  EchoEngine engine_{events_};
  EngineService service_{echo_config(),
                         engine_,
                         events_,
                         std::make_shared<ByteTokenizer>(),
                         std::make_shared<PlainTemplate>(),
                         watched_};
};

TEST_F(AbortsTest, EndsThoseThatAreNamedAndNoOthers) {
  const auto first = start("chatcmpl-a"), second = start("cmpl-b", 2), third = start("c");
  const auto aborted = service_.abort({.ids = {"a", "b_1", "none"}});
  EXPECT_THAT(ids(aborted), ElementsAre("chatcmpl-a", "cmpl-b"));
  EXPECT_EQ(failures(*first, Refusal::kAborted), 1u);
  EXPECT_EQ(failures(*second, Refusal::kAborted), 2u) << "the whole request ends";
  EXPECT_TRUE(second->replies.back().last);
  EXPECT_TRUE(running(1));
  EXPECT_TRUE(service_.health());
  EXPECT_THAT(ids(service_.abort({.all = true})), ElementsAre("c"));
  EXPECT_EQ(failures(*third, Refusal::kAborted), 1u);
  EXPECT_TRUE(service_.abort({.all = true}).empty());
}

TEST_F(AbortsTest, CountsTheTokensThatWereHeard) {
  const auto heard = start("a");
  const auto tokens = [&] {
    const std::lock_guard lock(heard->mutex);
    size_t count = 0;
    for (const Reply& reply : heard->replies) count += reply.tokens.size();
    return count;
  };
  for (int i = 0; i < 5000 && tokens() < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto aborted = service_.abort({.all = true});
  ASSERT_EQ(aborted.size(), 1u);
  EXPECT_EQ(static_cast<size_t>(aborted[0].generated), tokens());
  EXPECT_GE(tokens(), 3u);
}

TEST_F(AbortsTest, APauseEndsAllAndRefusesMore) {
  const auto before = start("a");
  EXPECT_THAT(ids(service_.pause({})), ElementsAre("a"));
  EXPECT_TRUE(service_.paused());
  EXPECT_FALSE(service_.health());
  EXPECT_EQ(failures(*before, Refusal::kPaused), 1u);
  const auto during = start("b", 2);
  EXPECT_EQ(failures(*during, Refusal::kPaused), 2u);
  service_.resume();
  EXPECT_TRUE(service_.health());
  const auto after = start("c");
  EXPECT_TRUE(running(1));
  EXPECT_EQ(failures(*after, Refusal::kPaused), 0u);
}

TEST_F(AbortsTest, APauseMayLetRequestsFinish) {
  const auto heard = start("a");
  EXPECT_THAT(ids(service_.pause({.waits = true, .seconds = 0.05})), ElementsAre("a"))
      << "those that take longer end";
  service_.resume();
  start("b");
  std::vector<Aborted> aborted;
  std::thread waits([&] { aborted = service_.pause({.waits = true, .seconds = 60}); });
  while (!service_.paused()) std::this_thread::yield();
  const auto during = start("c");
  EXPECT_EQ(failures(*during, Refusal::kPaused), 1u);
  EXPECT_TRUE(running(1));
  service_.abort({.ids = {"b"}});  // the last one has ended
  waits.join();
  EXPECT_TRUE(aborted.empty());
  EXPECT_TRUE(service_.paused());
}

TEST_F(AbortsTest, AResumeSparesThoseThatMayFinish) {
  const auto heard = start("a");
  std::thread waits([&] { EXPECT_TRUE(service_.pause({.waits = true, .seconds = 60}).empty()); });
  while (!service_.paused()) std::this_thread::yield();
  service_.resume();
  waits.join();
  EXPECT_TRUE(running(1));
  EXPECT_EQ(failures(*heard, Refusal::kPaused), 0u);
}

TEST_F(AbortsTest, EachRequestIsReportedOnce) {
  start("a");
  start("b");
  service_.abort({.ids = {"a"}});
  service_.stop();  // cancels b
  EXPECT_EQ(watched_->open, 0);
  ASSERT_EQ(watched_->summaries.size(), 2u);
  EXPECT_EQ(watched_->summaries[0].refusal, Refusal::kAborted);
  EXPECT_THAT(watched_->summaries[0].finishes, ElementsAre(Finish::kExhausted));
  EXPECT_FALSE(watched_->summaries[1].refusal);
  EXPECT_THAT(watched_->summaries[1].finishes, ElementsAre(Finish::kCancelled));
  EXPECT_TRUE(service_.abort({.all = true}).empty()) << "a service that has stopped answers";
}

TEST_F(AbortsTest, ForgottenPrefixesAreNeverFoundAgain) {
  start("a");
  service_.forget_prefixes();
  start("b");
  service_.forget_prefixes();
  start("c");
  const auto seen = engine_.seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NE(seen[0].cache.salt, seen[1].cache.salt);
  EXPECT_NE(seen[1].cache.salt, seen[2].cache.salt);
  EXPECT_NE(seen[0].cache.salt, seen[2].cache.salt);
}

}  // namespace
}  // namespace skiff::service
