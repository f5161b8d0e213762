// Tokens that are drafted from the texts themselves, or by the model itself. Tokens,
// log-probabilities and ends are bit for bit those without drafts, whatever the method, and there
// are fewer steps.
#include "base/json.h"
#include "engine/schedules_testing.h"

namespace skiff::engine {
namespace {

draft::Settings random_method(std::mt19937_64& rng) {
  const auto methods = draft::methods();
  const int least = 1 + static_cast<int>(rng() % 3);
  return {.method = std::string(methods[rng() % methods.size()].name),
          .tokens = 1 + static_cast<int>(rng() % 5),
          .min_ngram = least,
          .max_ngram = least + static_cast<int>(rng() % 4),
          .max_factor = rng() % 2 ? 1.0 : 4.0};
}

// Requests whose prompts repeat themselves, some twice with another seed, as of n > 1.
std::vector<NewSequence> repetitive_requests(std::mt19937_64& rng, int vocab) {
  auto all = random_requests(rng, vocab);
  for (size_t i = 0; i < all.size(); ++i) {
    NewSequence& s = all[i];
    if (i > 0 && rng() % 4 == 0) {
      s.prompt = all[i - 1].prompt;
      s.params = all[i - 1].params;
      ++s.params.seed;
    }
    const auto phrase =
        s.prompt.begin() + std::min<long>(std::ssize(s.prompt), 3 + long(rng() % 6));
    const std::vector<Token> again(s.prompt.begin(), phrase);
    while (rng() % 4 && s.prompt.size() + again.size() <= 44)
      s.prompt.insert(s.prompt.end(), again.begin(), again.end());
    if (rng() % 2) s.params.temperature = 0;
  }
  return all;
}

// Given what each request says alone: half of them end at a token of that, must avoid two of its
// tokens in a row, or have a part of it as their reference.
void add_stops(std::vector<NewSequence>& requests, const Texts& alone, std::mt19937_64& rng) {
  for (NewSequence& s : requests) {
    const std::vector<Token>& text = alone.at(s.id).tokens;
    const size_t at = rng() % text.size();
    const auto tail = text.begin() + static_cast<long>(at);
    if (rng() % 3 == 0) s.stop.tokens = {text[at]};
    if (rng() % 3 == 0 && at + 1 < text.size()) s.params.bad_words = {{text[at], text[at + 1]}};
    if (rng() % 3 == 0) s.reference = std::vector<Token>(tail, text.end());
  }
}

// What a request that was cancelled has said is the beginning of what it says alone.
void expect_begins(const Listener& listener, const Texts& alone) {
  for (const auto& [id, want] : alone) {
    if (!listener.knows(id)) continue;
    const Heard& got = listener.of(id);
    SCOPED_TRACE(testing::Message() << "sequence " << id);
    if (got.finish != Finish::kCancelled) {
      ASSERT_EQ(got.tokens, want.tokens);
      ASSERT_EQ(got.finish, want.finish);
    }
    ASSERT_LE(got.tokens.size(), want.tokens.size());
    ASSERT_TRUE(std::ranges::equal(got.tokens, std::span(want.tokens).first(got.tokens.size())));
    ASSERT_EQ(got.after_end, 0);
    auto logprobs = want.logprobs;
    logprobs.resize(got.logprobs.size());
    ASSERT_NO_FATAL_FAILURE(expect_same(got.logprobs, logprobs));
  }
}

void check_methods(const std::string& dir, model::LoadFormat format, int cases) {
  std::vector<std::unique_ptr<Model>> models;
  for (int threads = 1; threads <= 2; ++threads)
    models.push_back(std::make_unique<Model>(dir, format, DType::kF32, make_cpu_ops(threads)));
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(testing::Message() << dir << " seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = repetitive_requests(rng, models[0]->weights.spec.vocab);
    add_stops(requests, texts_alone(*models[0], requests, rng, storage), rng);
    const Texts alone = texts_alone(*models[0], requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    Setup setup = random_setup(rng);
    setup.drafts = random_method(rng);
    Model& model = *models[rng() % 2];
    if (rng() % 3 == 0) {
      setup.drafts.reset();
      setup.drafter = &model.weights;
      setup.draft_tokens = 1 + static_cast<int>(rng() % 5);
    }
    Listener listener;
    run(model, setup, shuffled_commands(requests, 0.1, rng), rng, nullptr, storage, listener,
        totals);
    ASSERT_NO_FATAL_FAILURE(expect_begins(listener, alone));
  }
  print(dir, totals, said.size());
  EXPECT_GT(totals.kept, cases);
  EXPECT_GT(totals.drafted, totals.kept);
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

TEST(Speculation, MethodsNeverChangeATextOfRandomWeights) {
  DummyFolder folder("speculation");
  check_methods(folder.path(), model::LoadFormat::kDummy, 60);
}

std::string demo_model() {
  const auto folders = small_models();
  return folders.empty() || !folders.back().ends_with("/demo") ? "" : folders.back();
}

TEST(Speculation, MethodsNeverChangeATextOfTheDemoModel) {
  const std::string demo = demo_model();
  if (demo.empty()) GTEST_SKIP() << "no models/demo";
  check_methods(demo, model::LoadFormat::kAuto, 10);
}

// The demo model's prompts and greedy replies of one skill.
std::vector<NewSequence> demo_prompts(const std::string& demo, const std::string& skill) {
  std::ifstream file(demo + "/expected_greedy.json");
  std::vector<NewSequence> all;
  for (const Json& one : Json::parse(file)) {
    if (one["skill"] != skill) continue;
    NewSequence s{.id = all.size() + 1, .prompt = one["prompt_ids"].get<std::vector<Token>>()};
    s.params.temperature = 0;
    s.stop = {.max_tokens = 120, .tokens = {2, 4}};
    all.push_back(std::move(s));
  }
  return all;
}

// Numbers of steps behind those that compute prompts.
struct Ratio {
  long plain = 0, drafted = 0;
  double value() const { return static_cast<double>(plain) / static_cast<double>(drafted); }
};

// Runs each request alone, with drafts and without; their texts must be the same.
Ratio steps_of(Model& model, const std::vector<NewSequence>& requests,
               const draft::Settings& drafts) {
  Ratio steps;
  std::mt19937_64 rng(1);
  const store::TempDir storage;
  Setup setup{.num_blocks = 128};
  setup.limits.max_context = 1024;
  // More rows take hardly longer, as on a device.
  setup.limits.policy.cost = sched::StepCost({{1, 1e-3}, {64, 1.1e-3}}, {});
  setup.limits.policy.step_seconds = std::numeric_limits<double>::infinity();
  for (const NewSequence& in : requests) {
    Listener plain, drafted;
    Totals before, after;
    setup.drafts.reset();
    run(model, setup, {in}, rng, nullptr, storage, plain, before);
    setup.drafts = drafts;
    run(model, setup, {in}, rng, nullptr, storage, drafted, after);
    EXPECT_EQ(plain.of(in.id).tokens, drafted.of(in.id).tokens);
    steps.plain += before.steps - 1;
    steps.drafted += after.steps - 1;
  }
  return steps;
}

class FewerSteps : public testing::Test {
 protected:
  void SetUp() override {
    if (demo_.empty()) GTEST_SKIP() << "no models/demo";
    model_.emplace(demo_, model::LoadFormat::kAuto, DType::kF32, make_cpu_ops(2));
  }
  Ratio report(const char* what, const std::vector<NewSequence>& requests,
               const draft::Settings& drafts) {
    const Ratio steps = steps_of(*model_, requests, drafts);
    std::printf("%s, %s: %ld steps, %ld without drafts, %.2f times as many\n", what,
                drafts.method.c_str(), steps.drafted, steps.plain, steps.value());
    return steps;
  }
  const std::string demo_ = demo_model();
  std::optional<Model> model_;
  const draft::Settings ngram_{.method = "ngram", .tokens = 8, .min_ngram = 1};
  const draft::Settings suffix_{.method = "suffix", .tokens = 8, .max_factor = 4};
};

// A form that is filled in repeats its prompt, but for the values.
TEST_F(FewerSteps, Forms) {
  const auto forms = demo_prompts(demo_, "json_form");
  ASSERT_FALSE(forms.empty());
  EXPECT_GT(report("forms", forms, ngram_).value(), 2.0);
  EXPECT_GT(report("forms", forms, suffix_).value(), 1.9);
}

// The reply is known but for a token.
TEST_F(FewerSteps, PredictedReplies) {
  auto forms = demo_prompts(demo_, "json_form");
  std::mt19937_64 rng(1);
  const store::TempDir storage;
  const Texts replies = texts_alone(*model_, forms, rng, storage, {.num_blocks = 128});
  for (NewSequence& s : forms) {
    std::vector<Token> prediction = replies.at(s.id).tokens;
    prediction[prediction.size() / 2] = 7;
    s.reference = std::move(prediction);
  }
  EXPECT_GT(report("predicted", forms, ngram_).value(), 2.0);
  EXPECT_GT(report("predicted", forms, suffix_).value(), 2.0);
}

// A reply that goes on without an end repeats itself.
TEST_F(FewerSteps, Repetitions) {
  auto lists = demo_prompts(demo_, "counting");
  for (NewSequence& s : lists) s.stop.tokens = {};
  EXPECT_GT(report("endless", lists, ngram_).value(), 2.0);
  EXPECT_GT(report("endless", lists, suffix_).value(), 2.0);
}

// Run for minutes: --gtest_also_run_disabled_tests.
TEST(Speculation, DISABLED_RandomWeightsAtLength) {
  DummyFolder folder("speculation_long");
  check_methods(folder.path(), model::LoadFormat::kDummy, 10000);
}
TEST(Speculation, DISABLED_DemoModelAtLength) {
  const std::string demo = demo_model();
  if (demo.empty()) GTEST_SKIP() << "no models/demo";
  check_methods(demo, model::LoadFormat::kAuto, 300);
}

}  // namespace
}  // namespace skiff::engine
