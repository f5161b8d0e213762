// engine/peers_testing.h -- for tests: whole engines that hand blocks over to each other.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/llm.h"
#include "engine/model_testing.h"
#include "engine/random_case_testing.h"

namespace skiff::engine {

// An engine, and what it has said.
class Instance {
 public:
  explicit Instance(const EngineConfig& config)
      : llm_(Llm::start(config, [this](const std::vector<Event>& events) { hear(events); })) {}
  ~Instance() { llm_->stop(/*drain=*/false); }
  Llm* operator->() { return llm_.get(); }
  int port() const { return llm_->stats().peers.port; }

  Heard result(NewSequence sequence) {
    const SeqId id = sequence.id;
    llm_->submit(std::move(sequence));
    return await(id);
  }
  Heard await(SeqId id) {
    std::unique_lock lock(mutex_);
    const bool ended = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      return listener_.knows(id) && listener_.of(id).finish != Finish::kNone;
    });
    EXPECT_TRUE(ended) << "sequence " << id;
    return listener_.of(id);
  }
  // Polls the numbers until `right` accepts them.
  template <class Right>
  bool comes_to(Right right) {
    for (int i = 0; i < 3000; ++i) {
      if (right(llm_->stats())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  void hear(const std::vector<Event>& events) {
    std::lock_guard lock(mutex_);
    listener_.hear(events);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Listener listener_;
  std::unique_ptr<Llm> llm_;
};

class PeersTest : public testing::Test {
 protected:
  PeersTest() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    mixed_.model = folder_.path();
    mixed_.load_format = model::LoadFormat::kDummy;
    mixed_.threads = 1;
    mixed_.block_size = 8;
    mixed_.max_num_batched_tokens = 64;  // prompts take several steps
    mixed_.max_num_seqs = 8;
    mixed_.quiet = true;
    mixed_.peers.buffer_gb = 0.01;
    mixed_.peers.wait_seconds = 60;  // no test waits for it unless it says so
  }
  EngineConfig prefill() const {
    EngineConfig config = mixed_;
    config.peers.role = peer::Role::kPrefill;
    return config;
  }
  EngineConfig decode(std::initializer_list<int> ports) const {
    EngineConfig config = mixed_;
    config.peers.role = peer::Role::kDecode;
    for (const int port : ports) config.peers.prefills.push_back({"127.0.0.1", port});
    return config;
  }
  // Requests that differ in all that decides about tokens.
  static NewSequence request(SeqId id, int prompt = 150) {
    NewSequence s;
    s.id = id;
    for (int i = 0; i < prompt; ++i) s.prompt.push_back((i * 7 + static_cast<int>(id)) % 97);
    s.stop.max_tokens = 20;
    s.params.temperature = id % 2 == 0 ? 0 : 1.3f;
    s.params.seed = id * 17;
    s.params.logprobs = id % 3 == 0 ? 3 : kNoLogprobs;
    s.params.repetition = id % 5 == 0 ? 1.2f : 1;
    return s;
  }
  static void expect_equal(const Heard& a, const Heard& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.logprobs, b.logprobs);
    EXPECT_EQ(a.finish, b.finish);
  }

  DummyFolder folder_;
  EngineConfig mixed_;
};

}  // namespace skiff::engine
