#include "engine/tier_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

namespace skiff::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kBlock = 16;
constexpr int kSource = 3;

// A disk that hangs in every call while its door is shut. Outlives the thread that hangs in it.
struct Disk {
  std::atomic<bool> shut = false;
  std::atomic<int> calls = 0;
  std::chrono::milliseconds takes{0};
  void open() {
    shut = false;
    shut.notify_all();
  }
  bool carry_out(const kv::TierJob& job, std::span<std::byte> block) {
    ++calls;
    shut.wait(true);
    std::this_thread::sleep_for(takes);
    if (job.kind == kv::TierJob::Kind::kRead) std::ranges::fill(block, std::byte{7});
    return true;
  }
};

class TierThreadTest : public testing::Test {
 protected:
  ~TierThreadTest() override { disk_->open(); }
  void begin(const TierThread::Patience& patience) {
    thread_ = std::make_unique<TierThread>(
        [disk = disk_](const kv::TierJob& job, std::span<std::byte> block) {
          return disk->carry_out(job, block);
        },
        [this](int host_block) {
          return std::span(memory_).subspan(static_cast<size_t>(host_block) * kBlock, kBlock);
        },
        inbox_, patience, kSource);
  }
  void ask(uint64_t id, kv::TierJob::Kind kind) {
    thread_->start({.id = id, .kind = kind, .source = kSource, .host_block = static_cast<int>(id)});
  }
  Command next_command() {
    if (waiting_.empty()) waiting_ = inbox_.drain_some();
    Command first = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    return first;
  }
  template <class T>
  T next() {
    const Command first = next_command();
    const T* wanted = std::get_if<T>(&first);
    EXPECT_NE(wanted, nullptr);
    return wanted != nullptr ? *wanted : T{};
  }

  std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  std::vector<std::byte> memory_ = std::vector<std::byte>(8 * kBlock);
  Queue<Command> inbox_;
  std::vector<Command> waiting_;
  std::unique_ptr<TierThread> thread_;
};

TEST_F(TierThreadTest, AReadThatHangsIsAnsweredAndTheFileLeftAloneUntilItReturns) {
  begin({.answer = 0.05, .rest = 0.05, .farewell = 0.05});
  disk_->shut = true;
  ask(1, kv::TierJob::Kind::kRead);
  ask(2, kv::TierJob::Kind::kRead);
  ask(3, kv::TierJob::Kind::kWrite);
  int out_of_use = 0;
  for (std::set<uint64_t> late; late.size() < 3 || out_of_use == 0;) {
    const Command told = next_command();
    if (const auto* state = std::get_if<TierState>(&told)) {
      EXPECT_FALSE(state->usable);
      EXPECT_EQ(state->source, kSource);
      ++out_of_use;
      continue;
    }
    const auto& answer = std::get<TierDone>(told);
    EXPECT_TRUE(answer.late && !answer.ok);
    EXPECT_TRUE(late.insert(answer.job).second) << "answered twice";
  }
  EXPECT_EQ(out_of_use, 1);
  ask(4, kv::TierJob::Kind::kRead);
  EXPECT_TRUE(next<TierDone>().late) << "asked while the disk hangs";
  EXPECT_EQ(disk_->calls, 1) << "nothing else is tried meanwhile";

  disk_->open();
  const auto again = next<TierState>();
  EXPECT_TRUE(again.usable);
  EXPECT_EQ(again.source, kSource);
  EXPECT_EQ(memory_[kBlock], std::byte{0}) << "the host block belongs to somebody else by now";
  ask(5, kv::TierJob::Kind::kRead);
  EXPECT_TRUE(next<TierDone>().ok);
  EXPECT_EQ(memory_[5 * kBlock], std::byte{7});
}

// Stops this process for that long, as SIGSTOP, a debugger or a suspended machine does.
void pause_process(std::chrono::milliseconds time) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    usleep(static_cast<useconds_t>(std::chrono::microseconds(time).count()));
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}

TEST_F(TierThreadTest, APauseOfTheProcessIsNotThatOfTheDisk) {
  begin({.answer = 0.8, .rest = 60, .farewell = 1});
  disk_->shut = true;
  ask(1, kv::TierJob::Kind::kWrite);
  ask(2, kv::TierJob::Kind::kRead);
  while (disk_->calls == 0) std::this_thread::sleep_for(1ms);
  pause_process(1500ms);
  std::this_thread::sleep_for(200ms);  // the disk still takes its time
  disk_->open();
  EXPECT_TRUE(next<TierDone>().ok);
  EXPECT_TRUE(next<TierDone>().ok);
}

// A read is late after its own time limit, however many reads were requested before it.
TEST_F(TierThreadTest, AReadBehindOthersIsLateByItsOwnAge) {
  begin({.answer = 0.5, .rest = 60, .farewell = 1});
  disk_->takes = 200ms;
  for (uint64_t id = 1; id < 8; ++id) ask(id, kv::TierJob::Kind::kRead);
  const auto begin = Clock::now();
  EXPECT_TRUE(next<TierDone>().ok);
  TierDone last;
  for (uint64_t id = 2; id < 8; ++id)
    last = next<TierDone>();  // no TierState: the disk is only slow
  EXPECT_TRUE(last.late);
  EXPECT_LT(Clock::now() - begin, 1200ms);
}

TEST_F(TierThreadTest, AHangingCallDoesNotKeepTheDestructor) {
  for (const auto kind : {kv::TierJob::Kind::kWrite, kv::TierJob::Kind::kRead}) {
    begin({.answer = 0.05, .rest = 60, .farewell = 5});
    disk_->shut = true;
    ask(1, kind);
    while (disk_->calls == 0) std::this_thread::yield();
    const auto begin = Clock::now();
    thread_.reset();
    EXPECT_LT(Clock::now() - begin, 3s);
    disk_->open();
    disk_->calls = 0;
    waiting_.clear();
    inbox_.drain(/*wait=*/false);
  }
}

TEST_F(TierThreadTest, TheDestructorWritesWhatItWasAskedTo) {
  begin({.answer = 60, .rest = 60, .farewell = 60});
  for (uint64_t id = 1; id < 8; ++id) ask(id, kv::TierJob::Kind::kWrite);
  thread_.reset();
  EXPECT_EQ(disk_->calls, 7);
  EXPECT_EQ(inbox_.drain(/*wait=*/false).size(), 7u);
}

TEST_F(TierThreadTest, TheDestructorLeavesWhatTakesTooLong) {
  begin({.answer = 60, .rest = 60, .farewell = 0.05});
  disk_->shut = true;
  for (uint64_t id = 1; id < 8; ++id) ask(id, kv::TierJob::Kind::kWrite);
  while (disk_->calls == 0) std::this_thread::yield();
  const auto begin = Clock::now();
  thread_.reset();
  EXPECT_LT(Clock::now() - begin, 3s);
  disk_->open();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(disk_->calls, 1) << "no more calls once the object is gone";
}

}  // namespace
}  // namespace skiff::engine
