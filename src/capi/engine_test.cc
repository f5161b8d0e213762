// An engine whose threads do not end in time, because one is held.
#include "capi/engine.h"

#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <future>
#include <thread>

#include "capi/log_setup.h"
#include "capi/options.h"

namespace skiff::capi {
namespace {

std::shared_ptr<Engine> loaded_demo(std::chrono::duration<double> longest_step) {
  set_up_log("error", "text");
  const auto words =
      option_words(R"({"max_model_len": 512, "model": ")" SKIFF_SOURCE_DIR R"(/models/demo"})");
  auto engine = std::make_shared<Engine>(apps::Args(apps::kLibrary, *words), longest_step);
  EXPECT_TRUE(engine->ready(-1, nullptr).ok());
  return engine;
}

Outcome state(const Engine& engine) {
  std::shared_ptr<Loaded> loaded;
  return engine.loaded(&loaded);
}

// Keeps the output thread, which stop() waits for, from when the first reply comes.
void hold_output(const Engine& engine, const std::shared_future<void>& gate) {
  std::shared_ptr<Loaded> loaded;
  ASSERT_TRUE(engine.loaded(&loaded).ok());
  service::Request request;
  request.input = std::string("Once");
  auto prepared = loaded->service().prepare(std::move(request));
  ASSERT_TRUE(prepared) << prepared.error().what;
  auto held = std::make_shared<std::promise<void>>();
  auto is_held = held->get_future();
  loaded->service().start(std::move(*prepared),
                          [gate, held, first = true](const service::Reply&) mutable {
                            if (std::exchange(first, false)) held->set_value();
                            gate.wait();
                          });
  is_held.wait();
}

TEST(Engine, AStopThatHungIsNoStopUntilTheThreadsEnd) {
  std::promise<void> opener;
  const auto engine = loaded_demo(std::chrono::milliseconds(50));
  hold_output(*engine, opener.get_future().share());
  const Outcome first = engine->stop();
  EXPECT_EQ(first.status, SKIFF_INTERNAL);
  EXPECT_EQ(engine->stop().status, SKIFF_INTERNAL);
  EXPECT_EQ(engine->stop().what, first.what);
  EXPECT_EQ(state(*engine).status, SKIFF_INTERNAL);
  opener.set_value();
  while (!engine->stop().ok()) std::this_thread::yield();
  EXPECT_EQ(state(*engine).status, SKIFF_CLOSED);
}

TEST(Engine, StopsOnceAndForAll) {
  const auto engine = loaded_demo(Engine::kLongestStep);
  EXPECT_TRUE(engine->stop().ok());
  EXPECT_TRUE(engine->stop().ok());
  EXPECT_EQ(state(*engine).status, SKIFF_CLOSED);
}

}  // namespace
}  // namespace skiff::capi
