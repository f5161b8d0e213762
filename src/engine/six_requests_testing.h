// engine/six_requests_testing.h -- for tests: what six requests get from an engine.
#pragma once
#include <gtest/gtest.h>

#include <map>

#include "engine/ear_testing.h"

namespace skiff::engine {

// Starts an engine, sends it six prompts of nine tokens, every other one greedy, and returns what
// was heard of each when all have ended. The vocabulary has at least 90 tokens.
inline std::map<SeqId, Heard> hear_six(const EngineConfig& config,
                                       sched::DraftStats* drafts = nullptr, int logprobs = 2) {
  constexpr int kRequests = 6;
  Ear ear;
  const auto llm = Llm::start(config, ear.sink());
  for (SeqId id = 1; id <= kRequests; ++id) {
    NewSequence s{.id = id};
    for (int i = 0; i < 9; ++i) s.prompt.push_back((i * 7 + static_cast<int>(id) * 3) % 90);
    s.params = {.temperature = id % 2 ? 0.f : 1.f, .seed = id, .logprobs = logprobs};
    s.stop.max_tokens = 30;
    llm->submit(std::move(s));
  }
  EXPECT_TRUE(ear.wait_for_ends(kRequests));
  llm->stop(/*drain=*/true);
  if (drafts != nullptr) *drafts = llm->stats().drafts;
  std::map<SeqId, Heard> all;
  for (SeqId id = 1; id <= kRequests; ++id) all[id] = ear.of(id);
  return all;
}

}  // namespace skiff::engine
