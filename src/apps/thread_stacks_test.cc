#include "apps/thread_stacks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace skiff::apps {
namespace {

const ThreadStack* find(const std::vector<ThreadStack>& stacks, const std::string& name) {
  for (const ThreadStack& thread : stacks)
    if (thread.name == name) return &thread;
  return nullptr;
}

// The thread sanitizer delays signals to threads that sleep.
#ifdef __SANITIZE_THREAD__
constexpr bool kSleepersAnswer = false;
#else
constexpr bool kSleepersAnswer = true;
#endif

TEST(ThreadStacks, EveryThreadIsThereWherever) {
  if (!kSleepersAnswer) GTEST_SKIP() << "signals do not come at once under this sanitizer";
  std::atomic<bool> over{false};
  std::thread sleeper([&] {
    pthread_setname_np(pthread_self(), "sleeper");
    over.wait(false);
  });
  std::thread spinner([&] {
    pthread_setname_np(pthread_self(), "spinner");
    while (!over) {
    }
  });
  // Its mask does not let the signal through.
  std::thread deaf([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    pthread_setname_np(pthread_self(), "deaf");
    over.wait(false);
  });
  std::vector<ThreadStack> stacks;
  // A thread that waits on an atomic spins and yields before it sleeps.
  const auto asleep = [&] {
    const auto* thread = find(stacks, "sleeper");
    return thread && thread->state == 'S';
  };
  for (int i = 0; i < 1000 && !(asleep() && find(stacks, "spinner") && find(stacks, "deaf") &&
                                find(stacks, "deaf")->frames.empty());
       ++i)
    stacks = thread_stacks();
  over = true;
  over.notify_all();
  sleeper.join();
  spinner.join();
  deaf.join();

  ASSERT_GE(stacks.size(), 4u);
  for (const char* name : {"sleeper", "spinner"}) {
    ASSERT_TRUE(find(stacks, name)) << name;
    EXPECT_GE(find(stacks, name)->frames.size(), 3u) << name;
  }
  EXPECT_TRUE(find(stacks, "deaf")->frames.empty());
  EXPECT_EQ(find(stacks, "sleeper")->state, 'S');
  const std::string text = text_of(stacks);
  EXPECT_THAT(text, testing::HasSubstr("sleeper (S)"));
  EXPECT_THAT(text, testing::HasSubstr("did not answer"));
}

// A late answer of one thread must not be taken for another's.
TEST(ThreadStacks, ManyTimesOver) {
  if (!kSleepersAnswer) GTEST_SKIP() << "signals do not come at once under this sanitizer";
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      pthread_setname_np(pthread_self(), fmt::format("t{}", i).c_str());
      over.wait(false);
    });
  for (int round = 0; round < 20; ++round) {
    int answered = 0;
    for (const ThreadStack& thread : thread_stacks()) answered += !thread.frames.empty();
    EXPECT_GE(answered, 9);
  }
  over = true;
  over.notify_all();
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace skiff::apps
