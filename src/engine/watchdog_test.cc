#include "engine/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>

#include "engine/engine.h"
#include "engine/fake_runner_testing.h"
#include "engine/stats_board.h"

namespace skiff::engine {
namespace {

TEST(StallClock, CountsFromTheFirstLookWithoutProgress) {
  StallClock clock(2);
  EXPECT_EQ(clock.look({.steps = 1, .seconds_since_progress = 9}, 100), 0);
  EXPECT_EQ(clock.look({.steps = 1, .seconds_since_progress = 10}, 101), 1);
  EXPECT_EQ(clock.look({.steps = 1, .seconds_since_progress = 11.5}, 102.5), 2.5);
  EXPECT_EQ(clock.look({.steps = 2, .seconds_since_progress = 0.1}, 103), 0);
  EXPECT_EQ(clock.look({.steps = 2, .seconds_since_progress = 1.1}, 104), 1);
}

TEST(StallClock, WithoutWorkNothingIsExpected) {
  StallClock clock(2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(clock.look({.steps = 7}, i), 0);
  // Work that arrives between two polls has waited only since it arrived.
  EXPECT_EQ(clock.look({.steps = 7, .seconds_since_progress = 0.25}, 100), 0.25);
}

TEST(StallClock, WhoWasStoppedHimselfSawNothing) {
  StallClock clock(2);
  clock.look({.steps = 1, .seconds_since_progress = 1}, 0);
  clock.look({.steps = 1, .seconds_since_progress = 2}, 1);
  EXPECT_EQ(clock.look({.steps = 1, .seconds_since_progress = 10002}, 10001), 3);
  // If the clock goes back nevertheless, nothing is added.
  EXPECT_EQ(clock.look({.steps = 1, .seconds_since_progress = 10003}, 50), 3);
}

TEST(StatsBoard, TimeWithoutProgressBeginsWithWork) {
  using namespace std::chrono_literals;
  StatsBoard board;
  EXPECT_EQ(board.read().seconds_since_progress, 0);
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(400ms);
    board.begin_work();  // after a while without any
    EXPECT_LT(board.read().seconds_since_progress, 0.4);
    std::this_thread::sleep_for(30ms);
    board.begin_work();
    EXPECT_GE(board.read().seconds_since_progress, 0.03) << "more work is no progress";
    board.end_work();
    EXPECT_GE(board.read().seconds_since_progress, 0.03) << "nor is an end that is not the last";
    const double before = board.read().seconds_since_progress;
    board.write({.steps = static_cast<uint64_t>(i) + 1});
    EXPECT_LT(board.read().seconds_since_progress, before);
    board.end_work();
    EXPECT_EQ(board.read().seconds_since_progress, 0);
  }
}

// Computes like FakeRunner, but not while the door is shut.
class HangingRunner : public Runner {
 public:
  explicit HangingRunner(const FakeRunner::Options& options) : runner_(options) {}
  void launch(const StepPlan& plan) override { runner_.launch(plan); }
  StepResult wait(uint64_t step) override {
    shut.wait(true);
    return runner_.wait(step);
  }
  std::atomic<bool> shut{false};

 private:
  FakeRunner runner_;
};

// An engine on its own thread, with one long sequence.
struct WatchedEngine {
  WatchedEngine() : runner({.num_blocks = 64, .block_size = 4, .limits = limits, .depth = 2}) {
    NewSequence sequence{.id = 1, .prompt = {100, 101, 102}, .params = {}, .stop = {}, .cache = {}};
    sequence.stop.max_tokens = 200;
    board.begin_work();
    inbox.push(std::move(sequence));
    thread = std::thread([this] { engine.run(abort); });
  }
  ~WatchedEngine() {
    open();
    abort = true;
    inbox.close();
    thread.join();
  }
  void open() {
    runner.shut = false;
    runner.shut.notify_all();
  }
  void hear(const std::vector<Event>& events) {
    EngineStats stats;
    stats.steps = engine.steps();
    board.write(stats);
    for (const Event& event : events)
      if (event.finish != Finish::kNone) {
        board.end_work();
        done.count_down();
      }
    // Slow enough for the watchdog to see the engine at work.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Pulse pulse() const {
    const EngineStats stats = board.read();
    return {stats.steps, stats.seconds_since_progress};
  }

  sched::Limits limits{.max_seqs = 4, .max_rows = 64, .max_context = 256, .max_logit_rows = 16};
  kv::CacheIndex cache{64, 4, true};
  sched::Scheduler scheduler{limits, cache};
  HangingRunner runner;
  Queue<Command> inbox;
  StatsBoard board;
  std::latch done{1};
  std::atomic<bool> abort{false};
  Engine engine{scheduler, runner, inbox, [this](const std::vector<Event>& e) { hear(e); }, 2};
  std::thread thread;
};

struct Seen {
  std::atomic<int> stalled{0}, moved{0}, reported{0}, ended{0};
  std::mutex mutex;
  std::string order;
  void note(char what) {
    std::lock_guard lock(mutex);
    order += what;
  }
  Watchdog::Hooks hooks(WatchedEngine& engine) {
    return {.pulses = [&engine] { return std::vector{engine.pulse()}; },
            .stalled =
                [this](bool on) {
                  note(on ? 's' : 'm');
                  ++(on ? stalled : moved);
                  (on ? stalled : moved).notify_all();
                },
            .report = [this](double) { note('r'), ++reported; },
            .end =
                [this] {
                  note('e');
                  ++ended;
                  ended.notify_all();
                }};
  }
};

TEST(Watchdog, LeavesAnEngineAloneThatWorks) {
  Seen seen;
  WatchedEngine engine;
  Watchdog dog(5, seen.hooks(engine));
  engine.done.wait();
  EXPECT_EQ(seen.order, "");
}

TEST(Watchdog, AHangFailsLivenessThenReportsThenEnds) {
  Seen seen;
  WatchedEngine engine;
  engine.runner.shut = true;
  Watchdog dog(0.2, seen.hooks(engine));
  seen.ended.wait(0);
  EXPECT_EQ(seen.order, "sre");
}

TEST(Watchdog, AnEngineThatMovesAgainIsForgiven) {
  Seen seen;
  WatchedEngine engine;
  engine.runner.shut = true;
  Watchdog dog(4, seen.hooks(engine));  // the grace is a second
  seen.stalled.wait(0);
  engine.open();
  seen.moved.wait(0);
  engine.done.wait();
  EXPECT_EQ(seen.order, "srm");
}

// Two engines: one makes a step between any two looks, the other none.
TEST(Watchdog, AReplicaThatHangsIsNotHiddenByOneThatMoves) {
  Seen seen;
  WatchedEngine engine;
  Watchdog::Hooks hooks = seen.hooks(engine);
  uint64_t steps = 0;
  hooks.pulses = [&steps] {
    return std::vector<Pulse>{{.steps = ++steps, .seconds_since_progress = 0.001},
                              {.steps = 7, .seconds_since_progress = 1000}};
  };
  Watchdog dog(0.1, hooks);
  seen.ended.wait(0);
  EXPECT_EQ(seen.order, "sre");
}

TEST(StepTally, EveryStepIsCounted) {
  WatchedEngine engine;
  engine.done.wait();
  engine.abort = true;
  engine.inbox.close();
  engine.thread.join();
  engine.thread = std::thread([] {});
  const StepTally& tally = engine.engine.tally();
  const auto sum = [](auto& t) {
    uint64_t all = 0;
    for (const uint64_t count : t.counts()) all += count;
    return all;
  };
  EXPECT_GT(engine.engine.steps(), 100u);
  for (const auto* part : {&tally.plan, &tally.launch, &tally.wait, &tally.commit}) {
    EXPECT_EQ(sum(*part), engine.engine.steps());
    EXPECT_GT(part->sum(), 0);
  }
  EXPECT_EQ(sum(tally.rows), engine.engine.steps());
  // These are the rows of the prompt and of all generated tokens but the last; one more step may
  // have been in flight.
  EXPECT_GE(tally.rows.sum(), 3 + 199);
  EXPECT_LE(tally.rows.sum(), 3 + 200);
  EXPECT_EQ(tally.rows.counts()[0], engine.engine.steps() - 1);
  EXPECT_EQ(tally.decodes.steps, engine.engine.steps() - 1);
  EXPECT_EQ(tally.others.steps, 1u);
  for (double StepSums::*part : {&StepSums::plan, &StepSums::launch, &StepSums::commit}) {
    EXPECT_GT(tally.decodes.*part, 0);
    EXPECT_GT(tally.others.*part, 0);
  }
  EXPECT_EQ(tally.checks.steps, 0u);
  EXPECT_NEAR(tally.decodes.wait + tally.others.wait, tally.wait.sum(), 1e-9 * tally.wait.sum());
}

TEST(StepTally, ValuesFallIntoTheirBuckets) {
  Tally<3> tally({1., 2., 4.});
  for (const double x : {0.5, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0}) tally.add(x);
  EXPECT_EQ(std::vector(tally.counts().begin(), tally.counts().end()),
            (std::vector<uint64_t>{2, 2, 1, 2}));
  EXPECT_EQ(tally.sum(), 113.5);
}

}  // namespace
}  // namespace skiff::engine
