// Tests that a server ends even if something hangs. Each case runs in a process of its own.
#include "apps/signal_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "apps/signals.h"
#include "apps/stall.h"
#include "serve/http/server_testing.h"

namespace skiff::apps {
namespace {

using Clock = std::chrono::steady_clock;

// Ends a case that hangs with a code that no case expects.
void bound_seconds(unsigned seconds) {
  std::signal(SIGALRM, [](int) { _exit(99); });
  alarm(seconds);
}

[[noreturn]] void hang() {
  for (;;) pause();
}

class SignalGuardTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SignalGuardTest, TheSecondSignalEndsAProcessWhoseWorkersHang) {
  const auto hangs = [] {
    bound_seconds(20);
    catch_signals();
    std::atomic<bool> cut_off{false}, busy{false};
    SignalGuard guard(kExitCutOff, [&] { cut_off = true; });
    http::Echo server(http::local_http_config(),
                      [&](const http::HttpRequest&, const std::shared_ptr<http::HttpReply>&) {
                        busy = true;
                        hang();
                      });
    http::TestClient client = server.client();
    client.send("GET", "/");
    if (!http::eventually([&] { return busy.load(); })) _exit(98);
    raise(SIGTERM);
    if (guard.next() != SIGTERM) _exit(97);
    const auto begin = Clock::now();
    std::thread second([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      raise(SIGTERM);
    });
    std::thread judge([&] {
      while (!cut_off)
        if (Clock::now() - begin > std::chrono::seconds(10)) _exit(96);
      std::this_thread::sleep_for(std::chrono::seconds(5));
      _exit(95);  // the deadline was missed
    });
    server.server.stop();  // joins the worker
  };
  EXPECT_EXIT(hangs(), testing::ExitedWithCode(3), "did not end in time");
}

TEST_F(SignalGuardTest, TheSecondSignalIsHeardWhileMainHangs) {
  const auto hangs = [] {
    bound_seconds(20);
    catch_signals();
    SignalGuard guard(3, [] {});
    raise(SIGINT);
    raise(SIGTERM);
    hang();
  };
  EXPECT_EXIT(hangs(), testing::ExitedWithCode(3), "did not end in time");
}

TEST_F(SignalGuardTest, OneSignalEndsNothing) {
  const auto waits = [] {
    bound_seconds(20);
    catch_signals_while_starting();
    catch_signals();
    std::atomic<int> cuts{0};
    {
      SignalGuard guard(3, [&] { ++cuts; });
      raise(SIGHUP);
      if (guard.next() != SIGHUP) _exit(98);
      raise(SIGTERM);
      if (guard.next() != SIGTERM) _exit(97);
      raise(SIGHUP);  // ignored from now on
      std::this_thread::sleep_for(2 * SignalGuard::kHurry);
    }
    _exit(cuts == 0 ? 0 : 96);
  };
  EXPECT_EXIT(waits(), testing::ExitedWithCode(0), "");
}

TEST_F(SignalGuardTest, AnOrderlyEndInTimeKeepsItsOwnCode) {
  const auto ends = [] {
    bound_seconds(20);
    catch_signals();
    std::atomic<bool> cut_off{false};
    {
      SignalGuard guard(3, [&] { cut_off = true; });
      raise(SIGTERM);
      raise(SIGTERM);
      if (!http::eventually([&] { return cut_off.load(); })) _exit(98);
    }
    std::this_thread::sleep_for(2 * SignalGuard::kHurry);
    _exit(42);
  };
  EXPECT_EXIT(ends(), testing::ExitedWithCode(42), "");
}

TEST_F(SignalGuardTest, ADeadlineEndsIt) {
  const auto hangs = [] {
    bound_seconds(20);
    catch_signals();
    SignalGuard guard(3, [] {});
    guard.end_within(std::chrono::milliseconds(50));
    hang();
  };
  EXPECT_EXIT(hangs(), testing::ExitedWithCode(3), "did not end in time");
}

}  // namespace
}  // namespace skiff::apps
