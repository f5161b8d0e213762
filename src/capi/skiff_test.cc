// The C interface over the demo model: what it refuses, and threads that use one engine.
#include "capi/skiff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <skiff_test_paths.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace skiff::capi {
namespace {

using testing::HasSubstr;

struct EngineFree {
  void operator()(skiff_engine* engine) const { skiff_engine_free(engine); }
};
using EnginePtr = std::unique_ptr<skiff_engine, EngineFree>;
struct QueueFree {
  void operator()(skiff_queue* queue) const { skiff_queue_free(queue); }
};
using QueuePtr = std::unique_ptr<skiff_queue, QueueFree>;

EnginePtr open_demo(const std::string& more = "") {
  const std::string options =
      R"({"log_level": "warning", "max_model_len": 512, "model": ")" SKIFF_SOURCE_DIR
      R"(/models/demo")" +
      more + "}";
  skiff_engine* engine = nullptr;
  EXPECT_EQ(skiff_open(options.data(), options.size(), &engine), SKIFF_OK) << skiff_last_error();
  return EnginePtr(engine);
}

EnginePtr loaded_demo(const std::string& more = "") {
  EnginePtr engine = open_demo(more);
  double part = 0;
  EXPECT_EQ(skiff_ready(engine.get(), -1, &part), SKIFF_OK) << skiff_last_error();
  EXPECT_EQ(part, 1);
  return engine;
}

QueuePtr queue_of(const EnginePtr& engine) {
  skiff_queue* queue = nullptr;
  EXPECT_EQ(skiff_queue_open(engine.get(), &queue), SKIFF_OK) << skiff_last_error();
  return QueuePtr(queue);
}

int submit(const QueuePtr& queue, const std::string& body, uint64_t* id,
           const char* kind = "completion") {
  return skiff_submit(queue.get(), kind, body.data(), body.size(), id);
}

// Nothing once the engine is closed.
std::optional<Json> wait(const QueuePtr& queue, int timeout_ms = -1) {
  char* text = nullptr;
  const int status = skiff_wait(queue.get(), timeout_ms, &text);
  if (status != SKIFF_OK) return std::nullopt;
  const auto events = parse_json(text);
  skiff_release(text);
  EXPECT_TRUE(events);
  return *events;
}

constexpr const char* kEndless = R"({"prompt": "Once", "max_tokens": 400, "ignore_eos": true})";

TEST(CInterface, RefusesWithAReason) {
  EXPECT_EQ(skiff_abi(), SKIFF_ABI);
  EXPECT_EQ(skiff_open("{}", 2, nullptr), SKIFF_INVALID);
  skiff_engine* none = nullptr;
  EXPECT_EQ(skiff_open("{}", 2, &none), SKIFF_NOT_FOUND);
  EXPECT_STREQ(skiff_last_error_field(), "model");
  EXPECT_EQ(skiff_open(nullptr, 0, &none), SKIFF_INVALID);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(skiff_ready(nullptr, 0, nullptr), SKIFF_INVALID);
  EXPECT_EQ(skiff_queue_fd(nullptr), -1);
  skiff_engine_free(nullptr);
  skiff_queue_free(nullptr);

  const EnginePtr engine = loaded_demo();
  const QueuePtr queue = queue_of(engine);
  uint64_t id = 0;
  EXPECT_EQ(submit(queue, R"({"prompt": "A"})", &id, "poem"), SKIFF_INVALID);
  EXPECT_THAT(skiff_last_error(), HasSubstr("\"completion\", \"chat\""));
  EXPECT_EQ(submit(queue, R"({"prompt": )", &id), SKIFF_INVALID);
  EXPECT_EQ(submit(queue, "{}", &id), SKIFF_NOT_FOUND);
  EXPECT_STREQ(skiff_last_error_field(), "prompt");
  EXPECT_EQ(submit(queue, R"({"prompt": ["A", "B"]})", &id), SKIFF_INVALID);
  EXPECT_EQ(submit(queue, R"({"prompt": "A", "echo": true})", &id), SKIFF_UNSUPPORTED);
  EXPECT_EQ(submit(queue, R"({"prompt": "A", "model": "other"})", &id), SKIFF_NOT_FOUND);
  EXPECT_EQ(submit(queue, R"({"prompt": "A", "top_p": 2})", &id), SKIFF_INVALID);
  EXPECT_STREQ(skiff_last_error_field(), "top_p");
  EXPECT_EQ(id, 0);
  EXPECT_EQ(wait(queue, 0)->size(), 0);
  EXPECT_EQ(skiff_cancel(queue.get(), 77), SKIFF_OK);
}

TEST(CInterface, ALoadingThatFailsSaysWhy) {
  const std::string options = R"({"model": "nowhere", "log_level": "error"})";
  skiff_engine* engine = nullptr;
  ASSERT_EQ(skiff_open(options.data(), options.size(), &engine), SKIFF_OK);
  const EnginePtr owner(engine);
  EXPECT_EQ(skiff_ready(engine, -1, nullptr), SKIFF_FAILED);
  EXPECT_THAT(skiff_last_error(), HasSubstr("nowhere: no such folder"));
  char* text = nullptr;
  EXPECT_EQ(skiff_info(engine, &text), SKIFF_FAILED);
}

TEST(CInterface, AnEngineMayGoWhileItLoads) {
  const EnginePtr engine = open_demo();
  char* text = nullptr;
  const int status = skiff_metrics(engine.get(), &text);
  EXPECT_TRUE(status == SKIFF_LOADING || status == SKIFF_OK);
  skiff_release(text);
}

TEST(CInterface, AQueueOutlivesItsEngine) {
  EnginePtr engine = loaded_demo();
  const QueuePtr queue = queue_of(engine);
  uint64_t id = 0;
  ASSERT_EQ(submit(queue, R"({"prompt": "A", "max_tokens": 1})", &id), SKIFF_OK);
  pollfd watched{.fd = skiff_queue_fd(queue.get()), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&watched, 1, 10000), 1);
  ASSERT_EQ(submit(queue, kEndless, &id), SKIFF_OK);
  engine.reset();
  EXPECT_EQ(wait(queue)->size(), 1);  // the rest that had come before
  EXPECT_FALSE(wait(queue));
  EXPECT_EQ(submit(queue, kEndless, &id), SKIFF_CLOSED);
  EXPECT_EQ(skiff_cancel(queue.get(), id), SKIFF_OK);
}

TEST(CInterface, AModelThatIsPooledEmbeds) {
  const EnginePtr engine = loaded_demo(R"(, "runner": "pooling", "convert": "embed")");
  const QueuePtr queue = queue_of(engine);
  uint64_t id = 0;
  EXPECT_NE(submit(queue, R"({"prompt": "A"})", &id), SKIFF_OK);
  EXPECT_EQ(submit(queue, R"({"input": ["A", "B"]})", &id, "embedding"), SKIFF_INVALID);
  EXPECT_EQ(submit(queue, R"({"input": "A", "dimensions": 3})", &id, "embedding"), SKIFF_INVALID);
  EXPECT_STREQ(skiff_last_error_field(), "dimensions");
  for (const char* body : {R"({"input": "A"})", R"({"input": "A"})", R"({"input": "B"})"})
    ASSERT_EQ(submit(queue, body, &id, "embedding"), SKIFF_OK) << skiff_last_error();
  std::map<uint64_t, std::vector<double>> vectors;
  while (vectors.size() < 3) {
    const auto events = wait(queue);
    for (const Json& event : *events) {
      EXPECT_TRUE(event.at("last").get<bool>()) << event.dump();
      EXPECT_FALSE(event.contains("text"));
      vectors[event.at("id")] = event.at("embedding").get<std::vector<double>>();
    }
  }
  double square = 0;
  for (const double x : vectors[id]) square += x * x;
  EXPECT_NEAR(square, 1, 1e-5);
  EXPECT_EQ(vectors[id - 1], vectors[id - 2]);
  EXPECT_NE(vectors[id - 1], vectors[id]);
}

TEST(CInterface, AModelThatGeneratesDoesNotEmbed) {
  const EnginePtr engine = loaded_demo();
  const QueuePtr queue = queue_of(engine);
  uint64_t id = 0;
  EXPECT_EQ(submit(queue, R"({"input": "A"})", &id, "embedding"), SKIFF_UNSUPPORTED);
  EXPECT_THAT(skiff_last_error(), HasSubstr("runner \"pooling\""));
}

// Threads submit to one queue and cancel every third request, another collects, and the end of the
// engine wakes it.
TEST(CInterface, ThreadsShareAQueue) {
  constexpr int kThreads = 3, kEach = 12;
  const EnginePtr engine = loaded_demo();
  const QueuePtr queue = queue_of(engine);
  std::atomic<int> ended = 0;
  std::jthread collector([&] {
    while (const auto events = wait(queue))
      for (const Json& event : *events) ended += event.at("last").get<bool>();
  });
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          uint64_t id = 0;
          const bool cancelled = i % 3 == 0;
          const char* body = cancelled ? kEndless : R"({"prompt": "A", "max_tokens": 3})";
          EXPECT_EQ(submit(queue, body, &id), SKIFF_OK);
          EXPECT_EQ(cancelled ? skiff_cancel(queue.get(), id) : SKIFF_OK, SKIFF_OK);
        }
      });
  }
  while (ended < kThreads * kEach * 2 / 3) std::this_thread::yield();
  EXPECT_EQ(skiff_stop(engine.get()), SKIFF_OK);
  EXPECT_EQ(skiff_stop(engine.get()), SKIFF_OK);
}

}  // namespace
}  // namespace skiff::capi
