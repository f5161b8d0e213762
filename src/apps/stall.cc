#include "apps/stall.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <thread>

#include "apps/thread_stacks.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

// The watchdog's grace is at most 5 s; the process ends after this time even if writing the report
// hangs.
constexpr unsigned kMaxReportSeconds = 15;

// In which the replies under way get their error. Clients that read slowly are not waited for.
constexpr double kErrorSeconds = 2;
// A probe may come this long after the failure and see it.
constexpr auto kProbeTime = std::chrono::seconds(1);

void end_now(int) { _exit(kExitStalled); }

void report(double seconds) {
  std::signal(SIGALRM, end_now);
  alarm(kMaxReportSeconds);
  spdlog::critical("the engine has made no step for {:.1f} s while requests wait; all threads:\n{}",
                   seconds, text_of(thread_stacks()));
}

// A thread of its own, because one that hangs may hold what fail() waits for.
void end_replies(serve::Server& server) {
  std::promise<void> done;
  std::future<void> ended = done.get_future();
  std::thread([&server, done = std::move(done)]() mutable {
    server.fail(kErrorSeconds);
    done.set_value();
  }).detach();
  ended.wait_for(std::chrono::duration<double>(2 * kErrorSeconds));
}

void set_stalled(serve::Server& server, bool stalled) {
  server.set_stalled(stalled);
  if (stalled) return;
  alarm(0);
  spdlog::error("the engine makes steps again");
}

}  // namespace

engine::Watchdog::Hooks stall_hooks(const engine::Llm& llm, serve::Server& server, double limit) {
  prepare_thread_stacks();
  return {.pulses =
              [&llm] {
                std::vector<engine::Pulse> pulses;
                for (const engine::EngineStats& stats : llm.stats_of_each())
                  pulses.push_back({stats.steps, stats.seconds_since_progress});
                return pulses;
              },
          .stalled = [&server](bool stalled) { set_stalled(server, stalled); },
          .report = report,
          .end =
              [&server, limit] {
                spdlog::critical("no step within --watchdog-timeout {} s: ending with code {}",
                                 limit, kExitStalled);
                end_replies(server);
                _exit(kExitStalled);
              }};
}

std::function<void(const std::string&)> failure_hook(serve::Server& server) {
  // Several threads may learn of one failure, and each waits for the end that the first brings.
  const auto told = std::make_shared<std::atomic<bool>>(false);
  return [&server, told](const std::string& why) {
    while (told->exchange(true)) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::signal(SIGALRM, [](int) { _exit(kExitFailed); });
    alarm(kMaxReportSeconds);
    server.set_stalled(true);
    spdlog::critical("the engine cannot go on, ending with code {}: {}", kExitFailed, why);
    const auto probed = std::chrono::steady_clock::now() + kProbeTime;
    end_replies(server);
    std::this_thread::sleep_until(probed);
    _exit(kExitFailed);
  };
}

}  // namespace skiff::apps
