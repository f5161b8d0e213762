// A model or module that drafts, beside replicas that share the experts of the served model: each
// request's tokens and log-probabilities are bit for bit those that it gets alone in such a group
// without drafts, however many tokens are drafted, wherever verdicts are taken, and whatever the
// other replicas do. Its drafts are those that it gets alone, too.
#include <gmock/gmock.h>

#include <limits>

#include "engine/ear_testing.h"
#include "engine/llm.h"
#include "engine/resolve.h"
#include "engine/sharing_testing.h"
#include "engine/six_requests_testing.h"

namespace skiff::engine {
namespace {

// A module is behind its last layer, and has a mixture of its own. No number of replicas divides
// the experts.
constexpr const char* kDeepSeek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "vocab_size": 96,
  "num_hidden_layers": 3, "intermediate_size": 48, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 8, "v_head_dim": 10, "moe_intermediate_size": 21, "n_routed_experts": 5,
  "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
  "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
  "num_nextn_predict_layers": 1, "max_position_embeddings": 256, "torch_dtype": "float32"})";

constexpr const char* kQwen = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32, "vocab_size": 96, "head_dim": 8,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32",
  "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 21,
  "norm_topk_prob": true, "rms_norm_eps": 1e-6})";

// Its context is shorter than that of the served model, so no step behind which it drafts is
// chained.
constexpr const char* kSmall = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "vocab_size": 96,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "max_position_embeddings": 40, "torch_dtype": "float32"})";

constexpr const char* kHead = R"({
  "hidden_size": 32, "vocab_size": 96, "num_hidden_layers": 1, "intermediate_size": 40,
  "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256,
  "torch_dtype": "float32", "eagle_aux_hidden_state_layer_ids": [0, 1, 2]})";

std::set<SeqId> cancelled_in(const std::vector<std::vector<Command>>& commands) {
  std::set<SeqId> ids;
  for (const auto& of_one : commands)
    for (const Command& command : of_one)
      if (const auto* cancel = std::get_if<Cancel>(&command)) ids.insert(cancel->id);
  return ids;
}

// What was said before a cancel is the beginning of the text.
void expect_begins(const Listener& heard, SeqId id, const Heard& alone) {
  if (!heard.knows(id)) return;
  const std::vector<Token>& said = heard.of(id).tokens;
  ASSERT_LE(said.size(), alone.tokens.size()) << "sequence " << id;
  EXPECT_TRUE(std::equal(said.begin(), said.end(), alone.tokens.begin())) << "sequence " << id;
}

// Has `heard` hear the drafts of each request alone, and then those of the setup, where blocks are
// not shared: a module's last row of a block took the token behind it, which another text may not
// have.
void listen(Sharing& group, const std::vector<NewSequence>& requests, const store::TempDir& storage,
            DraftsHeard& heard, Setup& setup) {
  std::mt19937_64 rng(1);
  group.texts_of({.draft_tokens = 3, .heard = &heard}, requests, rng, storage, /*plain=*/false);
  setup.share = false;
  setup.tiers = {};
  setup.heard = &heard;
}

// One case: requests alone, and the same ones in a random schedule of all replicas, with drafts.
void check_case(Sharing& group, std::mt19937_64& rng, int seed, bool greedy, Totals& totals) {
  const store::TempDir storage;
  auto requests = random_requests(rng, group.models[0]->weights.spec.vocab, {.requests = 14});
  if (greedy || seed % 2) let_chain(requests);
  for (NewSequence& one : requests) {
    if (!greedy) break;
    one.params = {.temperature = 0};
    one.stop.tokens = {};
  }
  Setup setup = random_setup(rng);
  const Texts alone = group.texts_of({}, requests, rng, storage);
  DraftsHeard drafts;
  if (seed % 4 == 1 && group.models[0]->ranks() == 1)
    listen(group, requests, storage, drafts, setup);
  setup.file_records = 0;  // each replica would need a folder of its own
  setup.damage = false;
  setup.draft_tokens = 1 + seed % 3;
  setup.pauses = seed / 3 % 4;
  const Dealt dealt(requests, group.models.size(), rng);
  const auto commands = dealt.commands(/*cancels=*/0.15, rng);
  std::vector<Listener> heard(group.models.size());
  group.run_all(setup, commands, nullptr, rng, storage, heard, totals);
  const std::set<SeqId> cancelled = cancelled_in(commands);
  for (const auto& [id, text] : alone) {
    const Listener& replica = heard[dealt.replica_of.at(id)];
    if (cancelled.count(id) > 0)
      ASSERT_NO_FATAL_FAILURE(expect_begins(replica, id, text));
    else
      ASSERT_NO_FATAL_FAILURE(expect_same(replica, {{id, text}}));
  }
  totals.compared += drafts.compared;
}

Totals check_texts(Sharing& group, int cases, bool greedy = false) {
  Totals totals;
  for (int seed = 0; seed < cases; ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, fmt::format("seed {}", seed));
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    check_case(group, rng, seed, greedy, totals);
    if (::testing::Test::HasFatalFailure()) return totals;
  }
  print("drafts of replicas", totals, 0);
  EXPECT_GT(totals.drafted, 0);
  EXPECT_EQ(totals.compared > 0, group.models[0]->ranks() == 1);
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.preemptions, 0u);
  return totals;
}

TEST(SharedDrafts, AModuleWithAMixtureOfItsOwnChangesNoText) {
  const DummyFolder served("shared_drafts_mtp", kDeepSeek);
  for (const auto& [act, cases] : {std::pair{DType::kF32, 9}, {DType::kBF16, 4}}) {
    Sharing group(served.path(), model::LoadFormat::kDummy, act, 2);
    group.add_drafters({.method = "mtp"}, served.path(), model::LoadFormat::kDummy);
    EXPECT_GT(check_texts(group, cases).chained, 0);
  }
}

TEST(SharedDrafts, ErniesModuleChangesNoText) {
  const std::string root = SKIFF_SOURCE_DIR, dir = root + "/tests/golden/ernie45_moe";
  Sharing group(dir, model::LoadFormat::kAuto, DType::kF32, 2);
  group.add_drafters({.method = "mtp", .model = root + "/tests/golden_mtp/ernie45"}, dir,
                     model::LoadFormat::kAuto);
  EXPECT_GT(check_texts(group, 9).chained, 0);
}

TEST(SharedDrafts, AnEagleHeadChangesNoText) {
  const DummyFolder served("shared_drafts_eagle", kQwen), head("shared_drafts_head", kHead);
  for (const char* method : {"eagle", "eagle3"}) {
    Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 2);
    group.add_drafters({.method = method, .model = head.path()}, served.path(),
                       model::LoadFormat::kDummy);
    check_texts(group, 6);
  }
}

TEST(SharedDrafts, ADraftModelChangesNoText) {
  const DummyFolder served("shared_drafts_model", kQwen), small("shared_drafts_small", kSmall);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 2);
  group.add_drafters({.method = "draft_model", .model = small.path()}, served.path(),
                     model::LoadFormat::kDummy);
  EXPECT_EQ(check_texts(group, 6).chained, 0);
}

// Replicas of two ranks each, among which the module is cut as it is where they share nothing.
TEST(SharedDrafts, AModuleThatRanksOfReplicasHaveChangesNoText) {
  const DummyFolder served("shared_drafts_ranks", kDeepSeek);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kBF16, 2, /*ranks=*/2);
  group.add_drafters({.method = "mtp"}, served.path(), model::LoadFormat::kDummy);
  EXPECT_GT(check_texts(group, 2).chained, 0);
}

// Keys and values of the drafter are where they belong. It adds its experts up in another order, so
// a tie may fall the other way.
void check_drafts_of_itself(int ranks, int draft_ranks, int cases) {
  const DummyFolder served("shared_drafts_self", kQwen);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 2, ranks);
  group.add_drafters({.method = "draft_model", .model = served.path(), .ranks = draft_ranks},
                     served.path(), model::LoadFormat::kDummy, /*seed=*/5);
  const Totals totals = check_texts(group, cases, /*greedy=*/true);
  EXPECT_GT(totals.drafted, 20 * cases);
  EXPECT_GT(totals.chained, 0);
  EXPECT_GE(totals.kept * 100, totals.drafted * 98);
}

TEST(SharedDrafts, DraftsOfTheModelItselfAreRightButForRounding) {
  check_drafts_of_itself(1, 0, 12);
}

TEST(SharedDrafts, SoAreThoseThatRanksOfReplicasMake) { check_drafts_of_itself(2, 0, 2); }

TEST(SharedDrafts, SoAreThoseThatEachOfTheseRanksMakesAlone) { check_drafts_of_itself(2, 1, 2); }

// A group whose other ranks never come.
class Deserted final : public comm::RowExchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Tensor dispatch(Tensor, Arena&, Ops&) override { throw std::runtime_error("nobody is there"); }
  Tensor combine(Tensor x, int64_t, Arena& arena, Ops& ops) override {
    return dispatch(x, arena, ops);
  }
};

// As a module's do, in a replica that shares those of the model.
TEST(SharedDrafts, ExpertsThatOneReplicaHasNeedNoOthers) {
  const DummyFolder served("shared_drafts_alone", kQwen);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 1);
  Model& model = *group.models[0];
  comm::Mesh mesh = comm::make_solo_mesh();
  mesh.experts = std::make_shared<Deserted>();
  const model::KvCache kv(model.weights.spec, 1, 16, model.kv, Device{});
  StepExecutor executor(
      model.weights, *model.ops, mesh, kv.layers(),
      {.limits = {.max_seqs = 1, .max_rows = 4, .max_context = 16, .max_logit_rows = 1}});
  const StepPlan plan{.spans = {{.count = 3, .sample = true}},
                      .tokens = {5, 6, 7},
                      .pages = {0},
                      .page_start = {0, 1},
                      .opened = {{.history = {5, 6, 7}, .prompt_len = 3}}};
  EXPECT_EQ(executor.run(plan).tokens[0].size(), 1u);
}

// A step of a round, chained or not, says how many rows all have; what drafts asks nobody.
TEST(SharedDrafts, EachStepExpectsTheRowsOfItsOwnRound) {
  const DummyFolder served("shared_drafts_expected", kDeepSeek);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 2);
  group.add_drafters({.method = "mtp"}, served.path(), model::LoadFormat::kDummy);
  Model& model = *group.models[0];
  const auto exchange = std::make_shared<Expecting>();
  comm::Mesh mesh = comm::make_solo_mesh(), alone = comm::make_solo_mesh();
  mesh.experts = exchange;
  const sched::Limits limits{.max_seqs = 2, .max_rows = 8, .max_context = 16, .max_logit_rows = 8};
  const model::KvCache kv(cached_spec(model.weights.spec, &group.drafters[0]), 1, 16, model.kv,
                          Device{});
  ModelDrafter drafter(group.drafters[0], *model.ops, alone,
                       kv.layers().subspan(model.weights.spec.layers.size()),
                       {.limits = limits, .tokens = 1, .captures = {1, 2}});
  StepExecutor executor(model.weights, *model.ops, mesh, kv.layers(),
                        {.limits = limits,
                         .captures = {.sizes = {1, 2}, .drafts = 1},
                         .drafter = &drafter,
                         .chains = true});
  int said = 0;
  const auto sums_of = [&](const StepPlan& plan, const RoundPart& other) {
    exchange->sums.clear();
    const RoundPart round[] = {part_of(plan), other};
    executor.launch(plan, round);
    said += static_cast<int>(executor.collect().tokens[0].size());
    return exchange->sums;
  };
  const StepPlan prompt{.spans = {{.count = 3, .sample = true}},
                        .tokens = {5, 6, 7},
                        .pages = {0},
                        .page_start = {0, 1},
                        .opened = {{.history = {5, 6, 7}, .prompt_len = 3}}};
  const RoundPart five{.seqs = 1, .rows = 5}, two{.seqs = 2, .rows = 2, .rows_per_seq = 1};
  EXPECT_THAT(sums_of(prompt, five), testing::ElementsAre(8, 8)) << "two mixtures";
  StepPlan chained{.spans = {{.begin = 3, .count = 2, .draft = 1, .sample = true}},
                   .tokens = {8, 9},
                   .pages = {0},
                   .page_start = {0, 1},
                   .chained = true};
  EXPECT_THAT(sums_of(chained, two), testing::ElementsAre(4, 4)) << "all replay steps of two rows";
  chained.spans[0].begin = 2 + said;
  EXPECT_THAT(sums_of(chained, five), testing::ElementsAre(7, 7)) << "nobody replays a step";
}

// The hidden rows of a step, which its drafts follow from, are used before a round in which the
// replica has no rows overwrites them.
TEST(SharedDrafts, ARoundWithoutRowsChangesNoDraft) {
  constexpr int kRows = 9;
  const DummyFolder served("shared_drafts_empty", kDeepSeek);
  Sharing group(served.path(), model::LoadFormat::kDummy, DType::kF32, 1);
  group.add_drafters({.method = "mtp"}, served.path(), model::LoadFormat::kDummy);
  Model& model = *group.models[0];
  const sched::Limits limits{
      .max_seqs = kRows, .max_rows = 2 * kRows, .max_context = 32, .max_logit_rows = kRows};
  StepPlan plan{.tokens = std::vector<Token>(kRows, 7), .pages = {0, 1}, .page_start = {0, 2}};
  for (int i = 0; i < kRows; ++i) plan.tokens[static_cast<size_t>(i)] = 5 + 3 * i;
  plan.spans = {{.count = kRows, .sample = true}};
  plan.opened = {{.history = plan.tokens, .prompt_len = kRows}};
  const auto drafts = [&](bool empty) {
    comm::Mesh mesh = comm::make_solo_mesh();
    const model::KvCache kv(cached_spec(model.weights.spec, &group.drafters[0]), 2, 16, model.kv,
                            Device{});
    ModelDrafter drafter(group.drafters[0], *model.ops, mesh,
                         kv.layers().subspan(model.weights.spec.layers.size()),
                         {.limits = limits, .tokens = 3});
    StepExecutor executor(model.weights, *model.ops, mesh, kv.layers(),
                          {.limits = limits, .captures = {.sizes = {kRows}}, .drafter = &drafter});
    executor.launch(plan);
    const RoundPart round[] = {{}, {.seqs = 1, .rows = 1, .rows_per_seq = 1}};
    if (empty) executor.run_empty(round);
    return executor.collect().drafts;
  };
  EXPECT_EQ(drafts(true), drafts(false));
  EXPECT_EQ(drafts(false)[0].size(), 3u);
}

// Under the engine, as users start it.
class SharedDraftsLlm : public ::testing::Test {
 protected:
  SharedDraftsLlm() {
    config_.model = served_.path();
    config_.device = "reference";  // costs are not measured there: drafts are checked at once
    config_.load_format = model::LoadFormat::kDummy;
    config_.block_size = 8;
    config_.threads = 2;
    config_.quiet = true;
    config_.replicas = 3;
    config_.expert_parallel = true;
    config_.num_blocks_override = 64;
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  }
  std::map<SeqId, Heard> heard(sched::DraftStats* drafts = nullptr) {
    return hear_six(config_, drafts);
  }
  model::MemoryPlan memory() {
    Ear ear;
    return Llm::start(config_, ear.sink())->memory();
  }

  const DummyFolder served_{"shared_drafts_llm", kDeepSeek};
  EngineConfig config_;
};

class SharedDraftsOfRanks : public SharedDraftsLlm, public ::testing::WithParamInterface<int> {};

TEST_P(SharedDraftsOfRanks, TextsAreThoseWithoutAModule) {
  config_.tensor_parallel = GetParam();
  if (GetParam() > 1) config_.replicas = 2;  // a rank has only two of the five experts
  const auto without = heard();
  for (const int in_flight : {1, 2}) {
    config_.steps_in_flight = in_flight;
    for (const int tokens : {1, 2, 3}) {
      config_.speculation = draft::Settings{.method = "mtp", .tokens = tokens};
      sched::DraftStats drafts;
      const auto with = heard(&drafts);
      EXPECT_GT(drafts.drafted, 0u);
      for (const auto& [id, alone] : without) {
        EXPECT_EQ(with.at(id).tokens, alone.tokens) << tokens << " drafts, request " << id;
        EXPECT_TRUE(with.at(id).logprobs == alone.logprobs) << "request " << id;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedDraftsOfRanks, ::testing::Values(1, 2));

// A replica has the module's experts for itself, as an engine alone has, and its share of the
// model's.
TEST_F(SharedDraftsLlm, TheMemoryPlanHasAllOfTheModule) {
  config_.speculation = draft::Settings{.method = "mtp", .tokens = 1};
  const model::MemoryPlan shared = memory();
  config_.replicas = 1;
  config_.expert_parallel = false;
  const model::MemoryPlan alone = memory();
  EXPECT_EQ(shared.drafter, alone.drafter);
  EXPECT_LT(shared.weights, alone.weights);
  // Three matrices for each of five experts.
  EXPECT_GT(shared.drafter, size_t{5} * 3 * 21 * 32 * sizeof(float));
}

}  // namespace
}  // namespace skiff::engine
