#include "serve/control/one_task.h"

#include <gtest/gtest.h>

#include <future>

namespace skiff::control {
namespace {

TEST(OneTask, TakesOneAtATimeAndTheNextWhenItTells) {
  OneTask task;
  for (int round = 0; round < 20; ++round) {
    std::promise<void> gate, told;
    ASSERT_TRUE(task.begin([&]() -> std::function<void()> {
      gate.get_future().wait();
      return [&] { told.set_value(); };
    })) << "what was told of the last one lets the next begin";
    EXPECT_FALSE(task.begin([]() -> std::function<void()> { return [] {}; }));
    gate.set_value();
    told.get_future().wait();
  }
}

TEST(OneTask, ItsEndWaitsForTheWork) {
  bool done = false;
  {
    OneTask task;
    ASSERT_TRUE(task.begin([&]() -> std::function<void()> { return [&] { done = true; }; }));
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace skiff::control
