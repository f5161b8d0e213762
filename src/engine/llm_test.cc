#include "engine/llm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/load_error.h"
#include "engine/ear_testing.h"
#include "engine/model_testing.h"
#include "engine/resolved.h"
#include "ops/cpu/cpu_features.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class LlmTest : public testing::Test {
 protected:
  LlmTest() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    config_.model = folder_.path();
    config_.load_format = model::LoadFormat::kDummy;
    config_.threads = 1;
    config_.block_size = 8;
    config_.quiet = true;
  }
  std::string refusal() {
    try {
      Llm::start(config_, ear_.sink());
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  }

  DummyFolder folder_;
  EngineConfig config_;
  Ear ear_;
};

NewSequence request(SeqId id, int prompt, int max_tokens) {
  NewSequence s;
  s.id = id;
  for (int i = 0; i < prompt; ++i) s.prompt.push_back((i * 7 + static_cast<int>(id)) % 97);
  s.stop.max_tokens = max_tokens;
  s.params.temperature = 0;
  return s;
}

TEST_F(LlmTest, AFailingEngineTellsWhyAndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [this](std::function<void(const std::string&)> hook) {
    config_.failed = std::move(hook);
    const auto llm = Llm::start(config_, [](const std::vector<Event>& events) {
      if (!events.empty()) throw std::runtime_error("the device is gone");
    });
    llm->submit(request(1, 10, 12));
    std::this_thread::sleep_for(10s);
  };
  EXPECT_EXIT(fail([](const std::string& why) { std::_Exit(why == "the device is gone" ? 7 : 8); }),
              testing::ExitedWithCode(7), "");
  EXPECT_EXIT(fail(nullptr), testing::ExitedWithCode(1), "");
}

TEST_F(LlmTest, AnswersResolvesAndCounts) {
  auto llm = Llm::start(config_, ear_.sink());
  EXPECT_EQ(llm->resolved().limits.max_context, 256);
  EXPECT_EQ(llm->resolved().limits.max_rows, 512);
  EXPECT_GT(llm->memory().blocks, 0);
  for (SeqId id = 1; id <= 20; ++id) llm->submit(request(id, 10, 12));
  ASSERT_TRUE(ear_.wait_for_ends(20));
  const EngineStats stats = llm->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.prompt_tokens, 200u);
  EXPECT_EQ(stats.generation_tokens, 240u);
  EXPECT_GE(stats.steps, 12u);
  EXPECT_EQ(stats.blocks_total, llm->memory().blocks);
  EXPECT_EQ(stats.blocks_free, stats.blocks_total);
  EXPECT_EQ(stats.seconds_since_progress, 0);
  EXPECT_EQ(ear_.of(7).finish, Finish::kLength);
}

TEST_F(LlmTest, BothDevicesAndDtypesRun) {
  for (const char* device : {"cpu", "reference"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      config_.device = device;
      config_.dtype = dtype;
      Ear ear;
      auto llm = Llm::start(config_, ear.sink());
      llm->submit(request(1, 10, 12));
      ASSERT_TRUE(ear.wait_for_ends(1));
      EXPECT_EQ(ear.of(1).tokens.size(), 12u);
    }
  }
}

TEST_F(LlmTest, StopDrainsWhatRuns) {
  auto llm = Llm::start(config_, ear_.sink());
  for (SeqId id = 1; id <= 12; ++id) llm->submit(request(id, 10, 30));
  llm->stop(/*drain=*/true);
  for (SeqId id = 1; id <= 12; ++id) EXPECT_EQ(ear_.of(id).tokens.size(), 30u);
  llm->stop(true);
  llm->stop(false);
  llm->submit(request(13, 10, 30));
  EXPECT_EQ(ear_.of(13).finish, Finish::kExhausted);
  EXPECT_THAT(ear_.of(13).why, HasSubstr("stopped"));
}

// The sequence is submitted from the sink when the engine's last event arrives: the inbox is read
// no more, and yet its sender gets an answer.
TEST_F(LlmTest, WhatComesAsTheEngineEndsIsRefused) {
  std::unique_ptr<Llm> llm;
  std::atomic<bool> begun = false, stopping = false;
  const Llm::Sink ear = ear_.sink();
  llm = Llm::start(config_, [&](std::vector<Event> events) {
    for (const Event& event : events) {
      if (event.seq == 1 && !event.tokens.empty() && !begun.exchange(true)) {
        begun.notify_all();
        stopping.wait(false);
      }
      if (event.seq == 1 && event.finish != Finish::kNone) {
        llm->submit(request(2, 10, 3));
        llm->cancel(2);
      }
    }
    ear(std::move(events));
  });
  llm->submit(request(1, 10, 12));
  begun.wait(false);
  std::thread stop([&] { llm->stop(/*drain=*/true); });
  std::this_thread::sleep_for(200ms);  // stop() has closed the inbox by then
  stopping = true;
  stopping.notify_all();
  const bool heard = ear_.wait_for_ends(2);
  stop.join();
  ASSERT_TRUE(heard);
  EXPECT_EQ(ear_.of(1).tokens.size(), 12u);
  EXPECT_EQ(ear_.of(2).finish, Finish::kExhausted);
  EXPECT_EQ(llm->stats().seconds_since_progress, 0);
}

TEST_F(LlmTest, AsManyThreadsComputeAsWereAskedFor) {
  const auto threads = [this](int wanted) {
    config_.threads = wanted;
    const auto llm = Llm::start(config_, ear_.sink());
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  EXPECT_EQ(threads(4) - threads(1), 3);
}

TEST_F(LlmTest, StopCancelsWhatRuns) {
  auto llm = Llm::start(config_, ear_.sink());
  for (SeqId id = 1; id <= 12; ++id) llm->submit(request(id, 10, 240));
  ASSERT_TRUE(ear_.wait_for_tokens(1));
  llm->stop(/*drain=*/false);
  EXPECT_TRUE(ear_.wait_for_ends(12));
  EXPECT_EQ(ear_.of(12).finish, Finish::kCancelled);
  EXPECT_EQ(llm->stats().blocks_free, llm->stats().blocks_total);
}

TEST_F(LlmTest, ADrainCanBeCutShort) {
  auto llm = Llm::start(config_, ear_.sink());
  for (SeqId id = 1; id <= 200; ++id) llm->submit(request(id, 10, 240));
  std::thread drain([&] { llm->stop(true); });
  ASSERT_TRUE(ear_.wait_for_tokens(1));
  llm->stop(false);
  drain.join();
  EXPECT_TRUE(ear_.wait_for_ends(200));
  EXPECT_EQ(ear_.of(200).finish, Finish::kCancelled);
}

TEST_F(LlmTest, CancelsARunningSequence) {
  auto llm = Llm::start(config_, ear_.sink());
  llm->submit(request(1, 10, 240));
  ASSERT_TRUE(ear_.wait_for_tokens(1));
  llm->cancel(1);
  llm->cancel(99);
  ASSERT_TRUE(ear_.wait_for_ends(1));
  EXPECT_EQ(ear_.of(1).finish, Finish::kCancelled);
}

TEST_F(LlmTest, RefusesWhatCannotRun) {
  config_.max_model_len = 32;
  auto llm = Llm::start(config_, ear_.sink());
  llm->submit(request(1, 32, 1));
  NewSequence foreign = request(2, 3, 1);
  foreign.prompt[1] = 97;
  llm->submit(foreign);
  ASSERT_TRUE(ear_.wait_for_ends(2));
  EXPECT_THAT(ear_.of(1).why, HasSubstr("context of 32"));
  EXPECT_THAT(ear_.of(2).why, HasSubstr("token 97"));
  EXPECT_EQ(llm->stats().seconds_since_progress, 0);
}

TEST_F(LlmTest, AnIdleEngineSleeps) {
  auto llm = Llm::start(config_, ear_.sink());
  llm->submit(request(1, 10, 5));
  ASSERT_TRUE(ear_.wait_for_ends(1));
  std::this_thread::sleep_for(50ms);  // threads that spin for a moment before they sleep
  const auto cpu = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  const double before = cpu();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(cpu() - before, 0.03);
}

TEST_F(LlmTest, WrongSettingsNameTheFlag) {
  const EngineConfig good = config_;
  const auto with = [&](auto change) {
    config_ = good;
    change(config_);
    return refusal();
  };
  EXPECT_THAT(with([](auto& c) { c.device = "abacus"; }), HasSubstr("--device"));
  EXPECT_THAT(with([](auto& c) { c.max_model_len = 257; }), HasSubstr("256 positions"));
  EXPECT_THAT(with([](auto& c) { c.max_num_seqs = -1; }), HasSubstr("--max-num-seqs"));
  EXPECT_THAT(with([](auto& c) { c.max_num_batched_tokens = 7; }),
              HasSubstr("--max-num-batched-tokens"));
  EXPECT_THAT(with([](auto& c) { c.steps_in_flight = 3; }), HasSubstr("1 or 2"));
  EXPECT_THAT(with([](auto& c) { c.memory_utilization = 1.5; }), HasSubstr("utilization"));
  EXPECT_THAT(with([](auto& c) { c.dtype = DType::kF16; }), HasSubstr("--dtype"));
  EXPECT_THAT(with([](auto& c) { c.swap_space_gb = -1; }), HasSubstr("--swap-space"));
  EXPECT_THAT(with([](auto& c) { c.swap_space_gb = 1e-9; }), HasSubstr("less than one block"));
  EXPECT_THAT(with([](auto& c) {
                c.swap_space_gb = 1;
                c.prefix_caching = false;
              }),
              HasSubstr("--enable-prefix-caching"));
  EXPECT_THAT(with([](auto& c) { c.storage_path = "/tmp"; }), HasSubstr("--kvcache-storage-size"));
  EXPECT_THAT(with([](auto& c) { c.model = "/nowhere"; }), HasSubstr("/nowhere"));
}

TEST_F(LlmTest, BlocksSurviveARestart) {
  const store::TempDir dir;
  config_.storage_path = dir.path() + "/kv";
  config_.storage_gb = 0.01;
  std::vector<Token> first;
  for (int life = 0; life < 2; ++life) {
    Ear ear;
    auto llm = Llm::start(config_, ear.sink());
    llm->submit(request(1, 100, 12));
    ASSERT_TRUE(ear.wait_for_ends(1));
    llm->stop(/*drain=*/true);
    EXPECT_EQ(ear.of(1).cached, life == 0 ? 0 : 96) << "from the first request";
    EXPECT_EQ(llm->stats().tiers.file_tokens, life == 0 ? 0u : 96u);
    if (life == 0) first = ear.of(1).tokens;
    EXPECT_EQ(ear.of(1).tokens, first);
  }
}

// Each of these begins the file anew; what it finds in a second life is its own.
TEST_F(LlmTest, BlocksOfOtherWeightsTypesAndBackendsAreNotUsed) {
  const store::TempDir dir;
  const std::string model = dir.path() + "/model", weights = model + "/model.safetensors";
  std::filesystem::copy(SKIFF_SOURCE_DIR "/tests/golden/qwen3", model);
  config_.model = model;
  config_.load_format = model::LoadFormat::kAuto;
  config_.max_model_len = 64;
  config_.storage_path = dir.path() + "/kv";
  config_.storage_gb = 0.01;
  const auto cached = [&] {
    Ear ear;
    auto llm = Llm::start(config_, ear.sink());
    NewSequence wanted = request(1, 40, 2);
    for (Token& token : wanted.prompt) token %= 32;
    llm->submit(std::move(wanted));
    EXPECT_TRUE(ear.wait_for_ends(1));
    llm->stop(/*drain=*/true);
    return ear.of(1).cached;
  };
  const auto began_anew = [&](const char* what) {
    EXPECT_EQ(cached(), 0) << what;
    EXPECT_EQ(cached(), 32) << what << ": the first life wrote nothing";
  };
  began_anew("an empty folder");
  const auto time = std::filesystem::last_write_time(weights);
  std::filesystem::last_write_time(weights, time + 1s);
  began_anew("another time of a weight file");
  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('\1');
  std::filesystem::last_write_time(weights, time + 1s);
  began_anew("other bytes in a weight file");
  config_.device = "reference";
  began_anew("another backend");
  config_.dtype = DType::kBF16;
  began_anew("another type");
  config_.version = "9.9";
  began_anew("another version");
  config_.load_format = model::LoadFormat::kDummy;
  began_anew("made-up weights");
  config_.seed = 1;
  began_anew("others of those");
}

TEST_F(LlmTest, EvictedBlocksComeBackFromHostMemory) {
  config_.num_blocks_override = 32;  // one context
  config_.swap_space_gb = 0.01;
  auto llm = Llm::start(config_, ear_.sink());
  for (SeqId id = 1; id <= 3; ++id) {
    llm->submit(request(id, 200, 12));
    ASSERT_TRUE(ear_.wait_for_ends(static_cast<int>(id)));
  }
  NewSequence again = request(1, 200, 12);
  again.id = 4;
  llm->submit(again);
  ASSERT_TRUE(ear_.wait_for_ends(4));
  EXPECT_EQ(ear_.of(4).cached, 192);
  EXPECT_EQ(ear_.of(4).tokens, ear_.of(1).tokens);
  EXPECT_EQ(llm->stats().tiers.host_tokens, 192u);
  EXPECT_GT(llm->memory().host(), 0u);
}

}  // namespace
}  // namespace skiff::engine
