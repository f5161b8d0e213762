// Admission without a protocol: who gets a ticket, for how long, and what the others hear.
#include "serve/service/admit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

using testing::HasSubstr;
using Kind = AdmissionRefusal::Kind;

class AdmitTest : public testing::Test {
 protected:
  static ServiceConfig bounded(int64_t waiting_tokens) {
    ServiceConfig config = echo_config();
    config.admission.waiting_tokens = waiting_tokens;
    return config;
  }
  std::vector<Prepared> prepared(size_t length) {
    Request request;
    request.input = std::vector<Token>(length, 'x');
    return {*echo_.service.prepare(std::move(request))};
  }
  std::optional<Kind> refused_kind() {
    const auto admitted = control_.admit();
    const auto* refused = std::get_if<AdmissionRefusal>(&admitted);
    return refused ? std::optional(refused->kind) : std::nullopt;
  }
  // Prompts in the engine's queue; it admits none while `hold` is set.
  RequestId wait_with(size_t length) {
    echo_.engine.hold = true;
    return echo_.service.start(prepared(length).front(), [](const Reply&) {});
  }
  std::string metrics() const { return echo_.service.metrics(); }

  EchoService echo_{bounded(20)};
  AdmissionControl control_{2, {"first", "second"}, echo_.service};
};

TEST_F(AdmitTest, TicketsCountFromAdmissionToTheirEnd) {
  auto first = control_.admit();
  ASSERT_TRUE(std::holds_alternative<Ticket>(first));
  {
    const auto second = control_.admit();
    ASSERT_TRUE(std::holds_alternative<Ticket>(second));
    EXPECT_EQ(refused_kind(), Kind::kConcurrency);
    EXPECT_EQ(refused_kind(), Kind::kConcurrency) << "a refusal takes no place";
  }
  EXPECT_EQ(refused_kind(), std::nullopt) << "the end of the ticket gives its place back";
  const auto again = control_.admit();
  Ticket moved = std::move(std::get<Ticket>(first));
  EXPECT_EQ(refused_kind(), Kind::kConcurrency) << "a ticket that moves keeps its place";
  moved.release();
  moved.release();
  EXPECT_EQ(refused_kind(), std::nullopt);
  const auto last = control_.admit();
  EXPECT_EQ(refused_kind(), Kind::kConcurrency) << "released twice, a ticket gives one place back";
}

TEST_F(AdmitTest, RefusalsForConcurrencySayTheBoundAndAreCounted) {
  EXPECT_EQ(control_.refuse_when_full(), std::nullopt);
  const auto first = control_.admit(), second = control_.admit();
  const auto refused = control_.refuse_when_full();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kConcurrency);
  EXPECT_THAT(refused->message, HasSubstr("max concurrency is 2"));
  EXPECT_GE(refused->retry_seconds, 1);
  EXPECT_LE(refused->retry_seconds, 60);
  EXPECT_EQ(refused_kind(), Kind::kConcurrency);
  EXPECT_THAT(metrics(),
              HasSubstr("requests_refused_total{model_name=\"echo\",reason=\"concurrency\"} 2\n"));
}

TEST_F(AdmitTest, AFullQueueAdmitsNothing) {
  const RequestId waiting = wait_with(20);
  EXPECT_EQ(refused_kind(), Kind::kQueueFull);
  const auto refused = control_.refuse_when_full();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kQueueFull);
  EXPECT_THAT(refused->message, HasSubstr("20 prompt tokens"));
  EXPECT_GE(refused->retry_seconds, 1);
  echo_.service.cancel(waiting);
  EXPECT_EQ(refused_kind(), std::nullopt);
  EXPECT_EQ(control_.refuse_when_full(), std::nullopt);
}

TEST_F(AdmitTest, PromptsMustFitTheQueueTogether) {
  const RequestId waiting = wait_with(12);
  const auto ticket = control_.admit();
  ASSERT_TRUE(std::holds_alternative<Ticket>(ticket));
  EXPECT_EQ(control_.check_queue(prepared(8)), std::nullopt);
  const auto refused = control_.check_queue(prepared(9));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kQueueFull);
  EXPECT_THAT(refused->message, HasSubstr("the 9 of this one"));
  echo_.service.cancel(waiting);
  EXPECT_EQ(control_.check_queue(prepared(100)), std::nullopt) << "the first to wait always may";
}

TEST_F(AdmitTest, ModelsAreKnownByAllTheirNames) {
  for (const char* name : {"", "default", "first", "second"})
    EXPECT_EQ(control_.check_model(name), std::nullopt) << name;
  const auto refused = control_.check_model(std::string(10000, 'm'));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kUnknownModel);
  EXPECT_LT(refused->message.size(), 300u) << "a long name is shortened";
  EXPECT_THAT(refused->message, HasSubstr("`first`"));
  EXPECT_EQ(refused->retry_seconds, 0);
}

TEST_F(AdmitTest, ADrainingServerAdmitsNothing) {
  const auto before = control_.admit();
  control_.begin_drain();
  EXPECT_TRUE(control_.draining());
  EXPECT_EQ(refused_kind(), Kind::kDraining);
  EXPECT_TRUE(std::holds_alternative<Ticket>(before)) << "what was admitted goes on";
}

TEST_F(AdmitTest, NoMoreThanTheBoundAreEverAdmittedAtOnce) {
  std::atomic<int> open{0}, most{0}, admitted{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 2000; ++j) {
        const auto result = control_.admit();
        if (!std::holds_alternative<Ticket>(result)) continue;
        ++admitted;
        const int now = ++open;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --open;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 2);
  EXPECT_GT(admitted, 0);
  const auto first = control_.admit(), second = control_.admit();
  EXPECT_TRUE(std::holds_alternative<Ticket>(second)) << "no place was lost";
}

}  // namespace
}  // namespace skiff::service
