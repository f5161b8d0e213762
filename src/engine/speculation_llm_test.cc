// A whole engine with drafts and without: the same texts. Prints steps and times, which on a
// machine that does other work say little.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "base/json.h"
#include "base/queue.h"
#include "base/seconds.h"
#include "engine/llm.h"
#include "engine/model_testing.h"
#include "engine/random_case_testing.h"

namespace skiff::engine {
namespace {

// The first prompts of the demo model's examples, each to be continued for 150 tokens.
std::vector<NewSequence> endless_prompts(const std::string& demo, size_t count) {
  std::ifstream file(demo + "/expected_greedy.json");
  std::vector<NewSequence> all;
  for (const Json& one : Json::parse(file)) {
    if (all.size() == count) break;
    NewSequence s{.id = all.size() + 1, .prompt = one["prompt_ids"].get<std::vector<Token>>()};
    s.params.temperature = 0;
    s.stop.max_tokens = 150;
    all.push_back(std::move(s));
  }
  return all;
}

struct Outcome {
  Listener listener;
  EngineStats stats;
  double seconds = 0;
};

void generate(const EngineConfig& config, const std::vector<NewSequence>& requests, Outcome& out) {
  Queue<std::vector<Event>> events;
  const auto llm = Llm::start(config, [&](std::vector<Event> e) { events.push(std::move(e)); });
  const auto start = std::chrono::steady_clock::now();
  for (const NewSequence& request : requests) llm->submit(request);
  for (size_t ended = 0; ended < requests.size();) {
    const auto batch = events.pop();
    for (const Event& event : *batch) ended += event.finish != Finish::kNone;
    out.listener.hear(*batch);
  }
  out.seconds = seconds_since(start);
  llm->stop(/*drain=*/true);
  out.stats = llm->stats();
}

class SpeculationLlm : public testing::TestWithParam<size_t> {};

TEST_P(SpeculationLlm, HasTheSameTexts) {
  const auto folders = small_models();
  if (folders.empty() || !folders.back().ends_with("/demo")) GTEST_SKIP() << "no models/demo";
  const auto requests = endless_prompts(folders.back(), GetParam());
  EngineConfig config{.model = folders.back(), .max_model_len = 512};
  config.device = "cpu";
  config.max_num_seqs = static_cast<int>(GetParam());
  config.quiet = true;
  Outcome plain;
  generate(config, requests, plain);
  EXPECT_EQ(plain.stats.drafts.checks, 0u);
  // The demo model has a module of its own, and drafts for itself.
  for (const std::string method :
       {"ngram", "suffix", "mtp", "mtp, wint8", "mtp, then ngram", "draft_model"}) {
    if (method == "draft_model" && requests.size() > 1) continue;  // as large, it takes long
    config.speculation = {
        .method = method.substr(0, method.find(',')), .tokens = 5, .min_ngram = 1, .max_factor = 4};
    if (method == "mtp") config.speculation->tokens = 2;
    if (method == "mtp, wint8") config.speculation->quantization = "wint8";
    if (method == "mtp, then ngram") config.speculation->model_steps = 1;
    if (method == "draft_model") config.speculation->model = folders.back();
    Outcome drafted;
    generate(config, requests, drafted);
    for (const NewSequence& request : requests)
      EXPECT_EQ(drafted.listener.of(request.id).tokens, plain.listener.of(request.id).tokens);
    const sched::DraftStats& drafts = drafted.stats.drafts;
    std::printf(
        "%zu at a time, %s: %zu steps instead of %zu, %.2f s instead of %.2f; %zu of %zu drafts "
        "kept\n",
        requests.size(), method.c_str(), drafted.stats.steps, plain.stats.steps, drafted.seconds,
        plain.seconds, drafts.kept, drafts.drafted);
    // What a row costs is measured, so how many drafts are checked, and in how many steps prompts
    // are computed, differs from run to run.
    EXPECT_LE(drafted.stats.steps, plain.stats.steps + 2 * requests.size() + 8);
    EXPECT_LE(drafts.kept, drafts.drafted);
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, SpeculationLlm, testing::Values(1, 8));

}  // namespace
}  // namespace skiff::engine
