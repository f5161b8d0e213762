#include "apps/pid_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

class PidFileTest : public testing::Test {
 protected:
  PidFileTest()
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("skiff_pid_{}/a/server.pid", getpid()))
                  .string()) {}
  ~PidFileTest() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path().parent_path());
  }
  const std::string path_;
};

TEST(ProcessName, TellsLivingProcessesFromEndedOnes) {
  const auto self = process_named(getpid());
  ASSERT_TRUE(self);
  EXPECT_TRUE(runs(*self));
  EXPECT_FALSE(runs({.pid = self->pid, .started = self->started + 1})) << "the number was reused";
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(gate[1]);
    _exit(static_cast<int>(read(gate[0], &byte, 1)));
  }
  close(gate[0]);
  const auto named = process_named(child);
  ASSERT_TRUE(named);
  EXPECT_TRUE(runs(*named));
  close(gate[1]);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(runs(*named)) << "it waits to be collected";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(runs(*named));
  EXPECT_FALSE(process_named(0));
}

TEST(ProcessName, OnlyItsOwnTextIsRead) {
  EXPECT_EQ(read_pid_text(pid_text({.pid = 12, .started = 99})), (ProcessName{12, 99}));
  for (const char* text : {"", "12", "12 ", "x 9", "-4 9", "0 9", "12 9 x", "12 -"})
    EXPECT_FALSE(read_pid_text(text)) << text;
}

TEST_F(PidFileTest, IsHeldWrittenAndRemoved) {
  EXPECT_FALSE(PidFile(path_, /*create=*/false).present());
  {
    PidFile file(path_, /*create=*/true);
    EXPECT_FALSE(file.process());
    EXPECT_THROW(PidFile(path_, true), LoadError) << "somebody is at work with it";
    file.write({.pid = 123456, .started = 1});
    file.write({.pid = 12, .started = 99});
    EXPECT_EQ(file.process(), (ProcessName{12, 99}));
  }
  PidFile again(path_, /*create=*/false);
  EXPECT_EQ(again.process(), (ProcessName{12, 99}));
  again.remove();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THROW(PidFile("/proc/none/x.pid", true), LoadError);
}

// Several threads make and remove the file: whoever holds it has the one that others find.
TEST_F(PidFileTest, AFileThatWasRemovedIsNotHeld) {
  std::atomic<int> held = 0, lost = 0;
  const auto work = [&](pid_t number) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::chrono::steady_clock::now() < end) try {
        PidFile file(path_, /*create=*/true);
        const ProcessName own{.pid = number, .started = 1};
        file.write(own);
        std::this_thread::yield();
        std::ifstream in(path_);
        const std::string text{std::istreambuf_iterator<char>(in), {}};
        lost += text != pid_text(own);
        ++held;
        file.remove();
      } catch (const LoadError&) {
        std::this_thread::yield();  // another thread holds it
      }
  };
  std::vector<std::thread> threads;
  for (pid_t number = 1; number <= 4; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(held, 0);
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace skiff::apps
