// Tokens that a model drafts. Tokens, log-probabilities and ends are bit for bit those without
// drafts, whatever the drafter; and a model that drafts for itself is always right, so its keys and
// values are where they belong.
#include "engine/model_drafter.h"

#include <gmock/gmock.h>

#include "engine/backend.h"
#include "engine/rank_weights.h"
#include "engine/resolve.h"
#include "engine/schedules_testing.h"

namespace skiff::engine {
namespace {

using testing::IsEmpty;

constexpr const char* kOneLayer = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "vocab_size": 97,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "max_position_embeddings": 40, "torch_dtype": "float32"})";

model::LoadedModel dummy(const std::string& dir, uint64_t seed, Ops& ops,
                         const std::string& quantization = "") {
  const model::ModelConfig config = model::read_model_config(dir);
  return model::load_model(dir, config,
                           {.precision = uniform_precision(DType::kF32),
                            .schemes = model::choose_schemes(quantization, "", config.spec),
                            .format = model::LoadFormat::kDummy,
                            .dummy_seed = seed},
                           ops);
}

// What each request says alone is the same with a drafter and every number of drafts, with those
// that n-grams of the text append to them, too.
void check_texts(Model& model, const model::LoadedModel& drafter, int cases, Totals& totals,
                 int appended = 0, bool chained = false) {
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = random_requests(rng, model.weights.spec.vocab);
    const bool chains = chained && seed % 2 == 1;
    if (chains) let_chain(requests);
    const Texts alone = texts_alone(model, requests, rng, storage);
    engine::Setup setup = random_setup(rng);
    if (chains) setup.depth = 2;
    setup.chains = chains;
    setup.drafter = &drafter;
    setup.draft_tokens = 1 + seed % 5;
    setup.pauses = seed % 4;
    if (appended > 0)
      setup.drafts = {.method = "ngram", .tokens = setup.draft_tokens + appended, .min_ngram = 1};
    const int lives = setup.file_records > 0 ? 2 : 1;
    for (int life = 0; life < lives; ++life) {
      Listener listener;
      run(model, setup, shuffled_commands(requests, 0, rng), rng, nullptr, storage, listener,
          totals);
      ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    }
  }
}

TEST(ModelDrafter, NeverChangesAText) {
  DummyFolder folder("drafted"), small("drafter", kOneLayer);
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const model::LoadedModel drafter = dummy(small.path(), 9, *model.ops);
  Totals totals;
  check_texts(model, drafter, 60, totals);
  print("another model", totals, 0);
  EXPECT_GT(totals.drafted, 0);
  EXPECT_LT(totals.kept, totals.drafted / 2) << "another model's drafts are mostly wrong";
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.cached, 0u);
}

TEST(ModelDrafter, NeverChangesATextWhereStepsAreChained) {
  DummyFolder folder("drafted_chained");
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  for (const uint64_t seed : {5, 9}) {
    const model::LoadedModel drafter = dummy(folder.path(), seed, *model.ops);
    Totals totals;
    check_texts(model, drafter, 30, totals, /*appended=*/0, /*chained=*/true);
    print(seed == 5 ? "the model, chained" : "another model, chained", totals, 0);
    EXPECT_GT(totals.chained, totals.steps / 20);
    EXPECT_EQ(totals.kept > totals.drafted / 4, seed == 5);
  }
}

TEST(ModelDrafter, NeverChangesATextWithNgramsBehindItsDrafts) {
  DummyFolder folder("drafted_ngrams");
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const model::LoadedModel drafter = dummy(folder.path(), 5, *model.ops);
  Totals plain, more;
  check_texts(model, drafter, 30, plain);
  check_texts(model, drafter, 30, more, /*appended=*/3);
  print("the model, then n-grams", more, 0);
  EXPECT_GT(more.drafted, plain.drafted);
  EXPECT_GT(more.kept, 0);
}

// Returns which part of the drafts of greedy sequences is kept.
double kept_of(Model& model, const model::LoadedModel& drafter) {
  Totals totals;
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = random_requests(rng, model.weights.spec.vocab);
    for (NewSequence& s : requests) s.params = {.temperature = 0};
    engine::Setup setup = random_setup(rng);
    setup.drafter = &drafter;
    setup.draft_tokens = 1 + seed % 3;
    Listener listener;
    run(model, setup, shuffled_commands(requests, 0, rng), rng, nullptr, storage, listener, totals);
  }
  EXPECT_GT(totals.drafted, 100);
  return static_cast<double>(totals.kept) / static_cast<double>(totals.drafted);
}

// Its drafts are those of its weights as far as these are: the text is the served model's.
TEST(ModelDrafter, AQuantizedOneNeverChangesATextAndDraftsNearly) {
  DummyFolder folder("drafted_quantized"), small("quantized_drafter", kOneLayer);
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const double other = kept_of(model, dummy(small.path(), 9, *model.ops));
  for (const char* scheme : {"wint8", "wint4", "int4", "block_wise_fp8", "a8w8"}) {
    SCOPED_TRACE(scheme);
    const model::LoadedModel drafter = dummy(folder.path(), 5, *model.ops, scheme);
    EXPECT_LT(drafter.bytes, model.weights.bytes);
    Totals totals;
    check_texts(model, drafter, 12, totals);
    EXPECT_GT(totals.drafted, 0);
    const double kept = kept_of(model, drafter);
    std::printf("%s: %.3f of the drafts are kept, of another model's %.3f\n", scheme, kept, other);
    EXPECT_GT(kept, std::string(scheme).find('4') == std::string::npos ? 0.7 : 2 * other);
  }
}

// The plan counts the bytes that are then loaded.
TEST(ModelDrafter, AQuantizedOneTakesTheMemoryOfThePlan) {
  DummyFolder folder("planned_drafter");
  EngineConfig config{.model = folder.path(), .load_format = model::LoadFormat::kDummy};
  config.device = "cpu";
  std::vector<size_t> bytes;
  for (const char* scheme : {"none", "wint8", "wint4"}) {
    config.speculation = {.method = "draft_model", .model = folder.path(), .quantization = scheme};
    const model::ModelConfig model = read_model(config);
    const Resolved resolved = resolve(config, model);
    const auto ops = make_ops(resolved);
    bytes.push_back(
        model::plan_memory(model.spec, memory_request(resolved, model.spec, *ops)).drafter);
    EXPECT_EQ(bytes.back(),
              load_weights(resolved, model, {}, folders_of(resolved, config.model), {}, *ops)
                  .drafter->bytes)
        << scheme;
  }
  EXPECT_LT(bytes[1], bytes[0]);
  EXPECT_LT(bytes[2], bytes[1]);
}

// Prefix hits, preemptions, cut prompts, lower tiers, rejected drafts and steps behind which
// nothing is drafted leave no hole in the drafter's keys and values: each draft of a greedy
// sequence is right.
TEST(ModelDrafter, DraftsOfTheModelItselfAreAlwaysRight) {
  DummyFolder folder("self_drafted");
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const model::LoadedModel drafter = dummy(folder.path(), 5, *model.ops);
  Totals totals;
  long most = 0;
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = random_requests(rng, model.weights.spec.vocab);
    for (NewSequence& s : requests) {
      s.params = {.temperature = 0};
      s.stop.tokens = {};
    }
    const Texts alone = texts_alone(model, requests, rng, storage);
    engine::Setup setup = random_setup(rng);
    setup.faults = 0;
    setup.damage = false;
    setup.drafter = &drafter;
    setup.draft_tokens = 1 + seed % 5;
    setup.pauses = seed % 4;
    Listener listener;
    Totals one;
    run(model, setup, shuffled_commands(requests, 0, rng), rng, nullptr, storage, listener, one);
    ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    ASSERT_EQ(one.kept, one.drafted);
    most = std::max(most, one.drafted);
    totals.kept += one.kept;
    totals.drafted += one.drafted;
    totals.cached += one.cached;
    totals.preemptions += one.preemptions;
    totals.from_host += one.from_host;
    totals.from_file += one.from_file;
  }
  print("the model itself", totals, 0);
  EXPECT_GT(most, 30);
  // Whether a tier pays is measured, so how much comes from each is not the same in every run.
  EXPECT_GT(totals.from_host + totals.from_file, 0u);
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.cached, 0u);
}

// A model that drafts for itself gives the token in whose place a draft stood the log-probabilities
// that it gave the draft, bit for bit; of another model's, the draft has the highest. Steps behind
// which nothing would be drafted do not matter to who requests them.
TEST(ModelDrafter, LogprobsOfDraftsAreThoseOfTheModelThatDrafts) {
  DummyFolder folder("reported"), small("reporter", kOneLayer);
  Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const model::LoadedModel own = dummy(folder.path(), 5, *model.ops),
                           other = dummy(small.path(), 9, *model.ops);
  long reported = 0, tokens = 0;
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = random_requests(rng, model.weights.spec.vocab);
    for (NewSequence& s : requests) {
      if (rng() % 4 == 0) continue;
      s.params.logprobs = static_cast<int>(rng() % 4);
      s.params.draft_logprobs = true;
    }
    const Texts alone = texts_alone(model, requests, rng, storage);
    engine::Setup setup = random_setup(rng);
    setup.faults = 0;
    setup.damage = false;
    setup.drafter = seed % 2 ? &own : &other;
    setup.draft_tokens = 1 + seed % 5;
    Listener listener;
    Totals totals;
    run(model, setup, shuffled_commands(requests, 0, rng), rng, nullptr, storage, listener, totals);
    ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    for (const NewSequence& s : requests) {
      const Heard& heard = listener.of(s.id);
      if (!s.params.draft_logprobs) {
        EXPECT_TRUE(heard.draft_logprobs.empty());
        continue;
      }
      tokens += std::ssize(heard.tokens);
      reported += std::ssize(heard.draft_logprobs);
      int last = -1;
      for (const auto& [at, draft] : heard.draft_logprobs) {
        ASSERT_GT(at, std::exchange(last, at)) << "one for each token";
        ASSERT_EQ(std::ssize(draft.top), s.params.logprobs);
        ASSERT_EQ(draft.rank, 1);
        ASSERT_TRUE(draft.top.empty() || draft.top[0] == draft.chosen);
        const PositionLogprobs& said = heard.logprobs.at(static_cast<size_t>(at));
        if (setup.drafter != &own) continue;
        ASSERT_EQ(draft.top, said.top);
        ASSERT_TRUE(draft.chosen.token != said.chosen.token || draft.chosen == said.chosen);
      }
    }
  }
  std::printf("%ld of %ld tokens had a draft\n", reported, tokens);
  EXPECT_GT(2 * reported, tokens);
}

// One sequence in blocks of 4, step by step.
class Stepwise : public testing::Test {
 protected:
  static constexpr int kBlock = 4;
  Stepwise()
      : folder_("stepwise"),
        model_(folder_.path(), model::LoadFormat::kDummy, DType::kF32, make_reference_ops()),
        own_(dummy(folder_.path(), 5, *model_.ops)) {}

  // Runs steps over `prompt` with two blocks; the drafter supports `context` positions.
  StepResult prompt_step(const std::vector<Token>& prompt, int blocks, int tokens,
                         int context = 256) {
    own_.spec.max_context = context;
    const sched::Limits limits{
        .max_seqs = 2, .max_rows = 32, .max_context = 64, .max_logit_rows = 16};
    ModelSpec cached = model_.weights.spec;
    cached.layers.insert(cached.layers.end(), own_.spec.layers.begin(), own_.spec.layers.end());
    model::KvCache kv(cached, 16, kBlock, model_.kv, Device{});
    comm::Mesh mesh = comm::make_solo_mesh();
    ModelDrafter drafter(own_, *model_.ops, mesh,
                         kv.layers().subspan(model_.weights.spec.layers.size()),
                         {.limits = limits, .tokens = tokens});
    StepExecutor executor(model_.weights, *model_.ops, mesh, kv.layers(),
                          {.limits = limits, .drafter = &drafter});
    StepPlan plan{.tokens = prompt, .page_start = {0, blocks}};
    const int count = static_cast<int>(prompt.size());
    plan.spans = {{.count = count, .sample = true}};
    for (int b = 0; b < blocks; ++b) plan.pages.push_back(3 + b);
    plan.opened = {{.params = {.temperature = 0}, .history = prompt, .prompt_len = count}};
    return executor.run(plan);
  }

  DummyFolder folder_;
  Model model_;
  model::LoadedModel own_;
};

TEST_F(Stepwise, DraftsEndWithTheLastBlock) {
  const std::vector<Token> prompt{3, 1, 4, 1, 5};
  const StepResult all = prompt_step(prompt, 3, 5);
  ASSERT_EQ(all.drafts.at(0).size(), 5u);
  // The token that was drawn is at position 5, drafts at 6, 7, ...; a draft needs the one before it
  // in a block.
  EXPECT_THAT(prompt_step(prompt, 2, 5).drafts.at(0),
              testing::ElementsAreArray(all.drafts[0].begin(), all.drafts[0].begin() + 3));
  EXPECT_THAT(prompt_step({3, 1, 4, 1}, 1, 5).drafts.at(0), IsEmpty()) << "no block for the draw";
}

// Decodes whose drafts nobody checks.
TEST_F(Stepwise, UncheckedDraftsAreMadeSeldom) {
  const sched::Limits limits{.max_seqs = 1, .max_rows = 8, .max_context = 200, .max_logit_rows = 4};
  model::KvCache kv(own_.spec, 50, kBlock, model_.kv, Device{});
  comm::Mesh mesh = comm::make_solo_mesh();
  ModelDrafter drafter(own_, *model_.ops, mesh, kv.layers(), {.limits = limits, .tokens = 2});
  int drafted = 0;
  const auto draw = [&](int at, int drafts) {
    StepPlan plan{.tokens = std::vector<Token>(static_cast<size_t>(1 + drafts), 5),
                  .page_start = {0, 50}};
    plan.spans = {{.begin = at, .count = 1 + drafts, .draft = drafts, .sample = true}};
    for (BlockId page = 0; page < 50; ++page) plan.pages.push_back(page);
    if (at == 0) plan.opened = {{.history = {5}, .prompt_len = 1}};
    StepResult result;
    result.tokens = {{6}};
    result.drafts.resize(1);
    drafter.draft(plan, {}, result);
    drafted += !result.drafts[0].empty();
    return result.drafts[0];
  };
  for (int at = 0; at < 64; ++at) draw(at, 0);
  EXPECT_EQ(drafted, ModelDrafter::kPatience + 7);
  EXPECT_THAT(draw(64, 1), testing::SizeIs(2)) << "one was checked";
  EXPECT_THAT(draw(65, 0), testing::SizeIs(2));
}

TEST_F(Stepwise, DraftsEndWhereTheDraftersContextDoes) {
  const std::vector<Token> prompt{3, 1, 4, 1, 5};
  EXPECT_EQ(prompt_step(prompt, 3, 5, 7).drafts.at(0).size(), 2u);
  EXPECT_THAT(prompt_step(prompt, 3, 5, 5).drafts.at(0), IsEmpty());
}

}  // namespace
}  // namespace skiff::engine
