#include "engine/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "base/load_error.h"
#include "engine/ear_testing.h"
#include "engine/model_testing.h"
#include "engine/resolve.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;

constexpr int kVocab = 97;  // that of kSmallLlama

class ReplicasTest : public testing::Test {
 protected:
  ReplicasTest() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    config_.model = folder_.path();
    config_.load_format = model::LoadFormat::kDummy;
    config_.threads = 1;
    config_.block_size = 8;
    config_.quiet = true;
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
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

std::vector<Token> random_tokens(std::mt19937_64& rng, size_t count) {
  std::vector<Token> tokens;
  while (tokens.size() < count) tokens.push_back(static_cast<Token>(rng() % kVocab));
  return tokens;
}

NewSequence request(SeqId id, int prompt, int max_tokens) {
  NewSequence s{.id = id, .prompt = {}, .params = {.temperature = 0}, .stop = {}, .cache = {}};
  for (int i = 0; i < prompt; ++i) s.prompt.push_back((i * 7 + static_cast<int>(id) * 3) % kVocab);
  s.stop.max_tokens = max_tokens;
  return s;
}

// A request of one to three choices, whose prompt may begin as another one does.
std::vector<NewSequence> random_choices(std::mt19937_64& rng, SeqId first,
                                        const std::vector<std::vector<Token>>& beginnings) {
  NewSequence one{.id = first, .prompt = {}, .params = {}, .stop = {}, .cache = {}};
  if (rng() % 3) one.prompt = beginnings[rng() % beginnings.size()];
  const auto tail = random_tokens(rng, 1 + rng() % 30);
  one.prompt.insert(one.prompt.end(), tail.begin(), tail.end());
  one.params.temperature = rng() % 3 ? 1.0f : 0.0f;
  one.params.seed = rng();
  one.params.logprobs = rng() % 2 ? 2 : kNoLogprobs;
  one.stop.max_tokens = 1 + static_cast<int>(rng() % 16);
  if (rng() % 4 == 0) one.cache.salt = "other";
  if (rng() % 8 == 0) one.cache.share = false;
  std::vector<NewSequence> choices(1 + (rng() % 4 == 0) * (rng() % 3), one);
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].id = first + i;
    choices[i].params.seed += i;
  }
  return choices;
}

// Asks for each sequence alone.
std::map<SeqId, Heard> alone(const EngineConfig& config, const std::vector<NewSequence>& all) {
  Ear ear;
  const auto llm = Llm::start(config, ear.sink());
  std::map<SeqId, Heard> heard;
  int ended = 0;
  for (const NewSequence& sequence : all) {
    llm->submit(sequence);
    EXPECT_TRUE(ear.wait_for_ends(++ended));
    heard[sequence.id] = ear.of(sequence.id);
  }
  return heard;
}

void expect_begins(const std::vector<Token>& whole, const std::vector<Token>& begin) {
  ASSERT_LE(begin.size(), whole.size());
  EXPECT_TRUE(std::equal(begin.begin(), begin.end(), whole.begin()));
}

// Which replica a request gets depends on how far the others are, so each run deals in its own way.
TEST_F(ReplicasTest, TokensAreThoseOfOneEngineInRandomSchedules) {
  std::mt19937_64 rng(1);
  std::vector<std::vector<Token>> beginnings;
  for (const size_t size : {16u, 40u, 64u, 90u}) beginnings.push_back(random_tokens(rng, size));
  std::vector<std::vector<std::vector<NewSequence>>> schedules(200);
  std::vector<NewSequence> all;
  SeqId id = 1;
  for (auto& schedule : schedules)
    for (size_t i = 1 + rng() % 8; i > 0; --i) {
      schedule.push_back(random_choices(rng, id, beginnings));
      id += schedule.back().size();
      all.insert(all.end(), schedule.back().begin(), schedule.back().end());
    }
  const auto expected = alone(config_, all);

  config_.replicas = 3;
  config_.max_num_seqs = 3;
  config_.num_blocks_override = 40;  // so that blocks are evicted and sequences preempted
  const auto llm = Llm::start(config_, ear_.sink());
  int ended = 0;
  for (const auto& schedule : schedules) {
    std::vector<SeqId> cancelled;
    for (const auto& choices : schedule) {
      llm->submit_together(choices);
      ended += static_cast<int>(choices.size());
      if (rng() % 8) continue;
      if (rng() % 2) {
        ASSERT_TRUE(ear_.wait_for_tokens(choices.front().id));
      }
      llm->cancel(choices.front().id);
      cancelled.push_back(choices.front().id);
    }
    ASSERT_TRUE(ear_.wait_for_ends(ended));
    for (const auto& choices : schedule)
      for (const NewSequence& choice : choices) {
        SCOPED_TRACE(testing::Message() << "sequence " << choice.id);
        const Heard heard = ear_.of(choice.id);
        EXPECT_EQ(heard.after_end, 0);
        const Heard& right = expected.at(choice.id);
        if (std::ranges::count(cancelled, choice.id) > 0) {
          expect_begins(right.tokens, heard.tokens);
          continue;
        }
        EXPECT_EQ(heard.tokens, right.tokens);
        EXPECT_EQ(heard.logprobs, right.logprobs);
        EXPECT_EQ(heard.finish, right.finish);
      }
  }
  const auto each = llm->stats_of_each();
  for (const EngineStats& stats : each) {
    EXPECT_GT(stats.cached_tokens, 0u);
    EXPECT_GT(stats.steps, 0u);
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
  }
  const EngineStats sum = llm->stats();
  EXPECT_EQ(sum.steps, each[0].steps + each[1].steps + each[2].steps);
  EXPECT_EQ(sum.blocks_total, 120);
  EXPECT_EQ(sum.running + sum.waiting, 0);
  EXPECT_EQ(sum.seconds_since_progress, 0);
}

TEST_F(ReplicasTest, EachMayHaveSeveralRanks) {
  std::string even = kSmallLlama;  // its vocabulary is cut, too
  even.replace(even.find("97"), 2, "98");
  const DummyFolder folder("replicas_of_ranks", even);
  config_.model = folder.path();
  std::vector<NewSequence> all;
  for (SeqId id = 1; id <= 12; ++id) all.push_back(request(id, 10 + static_cast<int>(id) * 3, 12));
  config_.tensor_parallel = 2;
  const auto expected = alone(config_, all);
  config_.replicas = 2;
  const auto llm = Llm::start(config_, ear_.sink());
  for (const NewSequence& sequence : all) llm->submit(sequence);
  ASSERT_TRUE(ear_.wait_for_ends(static_cast<int>(all.size())));
  for (const NewSequence& sequence : all)
    EXPECT_EQ(ear_.of(sequence.id).tokens, expected.at(sequence.id).tokens) << sequence.id;
  for (const EngineStats& stats : llm->stats_of_each()) EXPECT_GT(stats.steps, 0u);
}

// The first replica is held after its first tokens, so that it is busy whatever the machine does.
TEST_F(ReplicasTest, RequestsSpreadAndChoicesStayTogether) {
  config_.replicas = 2;
  std::atomic<bool> held = true;
  const auto llm = Llm::start(config_, [&, ear = ear_.sink()](const std::vector<Event>& events) {
    ear(events);
    for (const Event& event : events)
      if (event.seq == 4 && !event.tokens.empty()) held.wait(true);
  });
  std::vector<NewSequence> choices;
  for (SeqId id = 1; id <= 4; ++id) {
    choices.push_back(request(1, 20, 100));
    choices.back().id = id;
  }
  llm->submit_together(choices);
  for (SeqId id = 1; id <= 4; ++id) ASSERT_TRUE(ear_.wait_for_tokens(id));
  EXPECT_EQ(llm->stats_of_each()[1].steps, 0u) << "an idle replica makes no step";
  EXPECT_EQ(llm->stats_of_each()[0].prompt_tokens, 80u);
  llm->submit(request(5, 20, 3));
  ASSERT_TRUE(ear_.wait_for_ends(1));
  EXPECT_EQ(llm->stats_of_each()[1].prompt_tokens, 20u);
  EXPECT_EQ(llm->stats_of_each()[0].prompt_tokens, 80u);
  llm->cancel(2);
  llm->cancel(99);
  held = false;
  held.notify_all();
  ASSERT_TRUE(ear_.wait_for_ends(5));
  EXPECT_EQ(ear_.of(2).finish, Finish::kCancelled);
  EXPECT_EQ(ear_.of(1).tokens.size(), 100u);
  EXPECT_EQ(ear_.of(1).tokens, ear_.of(3).tokens);
}

TEST_F(ReplicasTest, StopEndsAllAndRefusesWhatComesLater) {
  config_.replicas = 3;
  for (const bool drains : {true, false}) {
    Ear ear;
    const auto llm = Llm::start(config_, ear.sink());
    for (SeqId id = 1; id <= 12; ++id) llm->submit(request(id, 10, 200));
    llm->stop(drains);
    for (SeqId id = 1; id <= 12; ++id) {
      EXPECT_NE(ear.of(id).finish, Finish::kNone);
      EXPECT_EQ(ear.of(id).after_end, 0);
      if (drains) {
        EXPECT_EQ(ear.of(id).tokens.size(), 200u);
      }
    }
    llm->stop(true);
    llm->submit(request(13, 10, 30));
    EXPECT_EQ(ear.of(13).finish, Finish::kExhausted);
    EXPECT_THAT(ear.of(13).why, HasSubstr("stopped"));
  }
}

TEST_F(ReplicasTest, AReplicaThatFailsSaysWhoItIs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [this] {
    config_.replicas = 2;
    config_.failed = [](const std::string& why) {
      std::_Exit(why == "replica 1: the device is gone" ? 7 : 8);
    };
    const auto llm = Llm::start(config_, [](const std::vector<Event>& events) {
      for (const Event& event : events) {
        if (event.seq == 2) throw std::runtime_error("the device is gone");
        std::this_thread::sleep_for(std::chrono::seconds(10));  // the first replica stays busy
      }
    });
    llm->submit(request(1, 10, 200));
    llm->submit(request(2, 10, 200));
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(7), "");
}

TEST_F(ReplicasTest, OneCopyOfTheWeightsAndAFairShareOfTheRest) {
  config_.threads = 5;
  config_.swap_space_gb = 1e-3;
  config_.storage_path = "/cache";
  config_.storage_gb = 3;
  config_.version = "1";
  const model::ModelConfig model = read_model(config_);
  const Resolved one = resolve(config_, model);
  config_.replicas = 3;
  const Resolved all = resolve(config_, model);
  EXPECT_EQ(replica_of(all, 0).threads, 2);
  EXPECT_EQ(replica_of(all, 1).threads, 2);
  EXPECT_EQ(replica_of(all, 2).threads, 1);
  EXPECT_EQ(replica_of(all, 0).cache.storage_path, "/cache");
  EXPECT_EQ(replica_of(all, 2).cache.storage_path, "/cache/replica-2");
  EXPECT_EQ(replica_of(all, 2).cache.storage_bytes, one.cache.storage_bytes / 3);
  EXPECT_LT(all.cache.host_slots, one.cache.host_slots);
  EXPECT_EQ(replica_of(one, 0).cache.storage_path, "/cache");
  config_.threads = 2;
  EXPECT_EQ(replica_of(resolve(config_, model), 2).threads, 1);
}

TEST_F(ReplicasTest, MoreReplicasThanDevicesAreRefused) {
  config_.device = "cuda";
  config_.replicas = 128;
  EXPECT_THAT(refusal(), HasSubstr("--data-parallel-size is 128, but there are"));
  config_.device = "cuda:0";
  config_.replicas = 2;
  EXPECT_THAT(refusal(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  config_.device = "cpu";
  config_.replicas = 129;
  EXPECT_THAT(refusal(), HasSubstr("--data-parallel-size is 129; it must be from 1 to 128"));
}

}  // namespace
}  // namespace skiff::engine
