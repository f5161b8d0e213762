// A model or module that drafts, where several ranks compute the served model: tokens,
// log-probabilities and ends are bit for bit those that the ranks give without drafts.
#include <gmock/gmock.h>

#include "base/load_error.h"
#include "engine/drafter_source.h"
#include "engine/ear_testing.h"
#include "engine/llm.h"
#include "engine/rank_group.h"
#include "engine/resolve.h"
#include "engine/schedules_testing.h"
#include "engine/six_requests_testing.h"
#include "model/eagle.h"
#include "model/mtp.h"

namespace skiff::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kServed = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 96,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})";

// It can be cut among two ranks, which have its key and value head twice.
constexpr const char* kSmall = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "vocab_size": 96,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "max_position_embeddings": 40, "torch_dtype": "float32"})";

// A module is behind its last layer. Neither 21 columns nor five experts can be cut in equal parts.
constexpr const char* kDeepseek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "vocab_size": 96,
  "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 8, "v_head_dim": 10, "moe_intermediate_size": WIDTH, "n_routed_experts": 5,
  "n_shared_experts": 2, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
  "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
  "num_nextn_predict_layers": 1, "max_position_embeddings": 256, "torch_dtype": "float32"})";

std::string deepseek(const std::string& width) {
  std::string config = kDeepseek;
  return config.replace(config.find("WIDTH"), 5, width);
}

// What a group serves, and what drafts for it, a part for each rank.
class Group {
 public:
  Group(const std::string& dir, const draft::Settings& settings, model::LoadFormat format,
        DType act, int size, Moe::Deal deal = Moe::kSlices, uint64_t seed = 9)
      : model(cut_model(dir, format, act, size, 2, deal)) {
    const Precision precision = uniform_precision(act);
    model::ModelConfig served = Model::config_of(dir, deal);
    if (settings.method == "eagle3")
      served.spec.taps = model::eagle_taps(settings.model, served.spec);
    DrafterSource source = *find_drafter(settings, dir, served, precision, size);
    whole_ = source.part.size == 1;
    for (int rank = 0; rank < size; ++rank) {
      Model& part = model->rank(static_cast<size_t>(rank));
      part.weights.spec.taps = served.spec.taps;
      take_part(source, rank);
      drafters_.push_back(model::load_model(source.folder, source.config,
                                            {.precision = precision,
                                             .schemes = source.schemes,
                                             .format = format,
                                             .dummy_seed = seed,
                                             .part = source.part},
                                            *part.ops));
      model::LoadedModel& loaded = drafters_.back();
      if (loaded.spec.joins)
        model::share_weights(loaded.spec, loaded.weights, part.weights.weights);
    }
  }
  void draft(Setup& setup) const {
    setup.drafter = &drafters_.front();
    for (size_t rank = 1; rank < drafters_.size(); ++rank)
      setup.other_drafters.push_back(&drafters_[rank]);
    setup.drafter_whole = whole_;
  }

  std::unique_ptr<Model> model;

 private:
  std::vector<model::LoadedModel> drafters_;
  bool whole_ = false;
};

// What each request says alone is the same with a drafter and up to three drafts, in random
// schedules. Where `greedy`, all requests are.
Totals check_texts(const Group& group, int cases, bool greedy = false) {
  Totals totals;
  for (int seed = 0; seed < cases; ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, fmt::format("seed {}", seed));
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    auto requests = random_requests(rng, group.model->weights.spec.vocab);
    for (NewSequence& s : requests) {
      if (!greedy) break;
      s.params = {.temperature = 0};
      s.stop.tokens = {};
    }
    const Texts alone = texts_alone(*group.model, requests, rng, storage);
    Setup setup = random_setup(rng);
    if (greedy) setup.faults = 0, setup.damage = false;
    group.draft(setup);
    setup.draft_tokens = 1 + seed % 3;
    setup.pauses = seed / 3 % 4;
    const int lives = setup.file_records > 0 ? 2 : 1;
    for (int life = 0; life < lives; ++life) {
      Listener listener;
      run(*group.model, setup, shuffled_commands(requests, 0, rng), rng, nullptr, storage, listener,
          totals);
      expect_same(listener, alone);
      if (::testing::Test::HasFatalFailure()) return totals;
    }
  }
  print("drafts on ranks", totals, 0);
  EXPECT_GT(totals.drafted, 0);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(totals.cached, 0u);
  return totals;
}

TEST(RankDrafts, ADraftModelThatIsCutChangesNoText) {
  const DummyFolder served("rank_drafts_cut", kServed), small("rank_drafts_cut_small", kSmall);
  for (const DType act : {DType::kF32, DType::kBF16})
    check_texts(Group(served.path(), {.method = "draft_model", .model = small.path()},
                      model::LoadFormat::kDummy, act, 2),
                24);
}

TEST(RankDrafts, QuantizedOnesChangeNoText) {
  const DummyFolder served("rank_drafts_quantized", kServed),
      small("rank_drafts_quantized_small", kSmall);
  for (const int ranks : {0, 1})
    check_texts(Group(served.path(),
                      {.method = "draft_model",
                       .model = small.path(),
                       .quantization = "wint8",
                       .ranks = ranks},
                      model::LoadFormat::kDummy, DType::kF32, 2),
                12);
}

TEST(RankDrafts, ADraftModelThatEachRankHasWholeChangesNoText) {
  const DummyFolder served("rank_drafts_whole", kServed), small("rank_drafts_whole_small", kSmall);
  for (const int size : {2, 4})
    check_texts(Group(served.path(), {.method = "draft_model", .model = small.path(), .ranks = 1},
                      model::LoadFormat::kDummy, DType::kF32, size),
                24);
}

// Keys and values of all ranks are where they belong: each draft of a greedy sequence is right.
TEST(RankDrafts, DraftsOfTheModelItselfAreAlwaysRight) {
  const DummyFolder served("rank_drafts_self", kServed);
  const Group group(served.path(), {.method = "draft_model", .model = served.path()},
                    model::LoadFormat::kDummy, DType::kF32, 2, Moe::kSlices, /*seed=*/5);
  const Totals totals = check_texts(group, 24, /*greedy=*/true);
  EXPECT_EQ(totals.kept, totals.drafted);
  EXPECT_GT(totals.drafted, 200);
  EXPECT_GT(totals.preemptions, 0u);
}

TEST(RankDrafts, AModuleChangesNoText) {
  const DummyFolder served("rank_drafts_mtp", deepseek("20"));
  for (const DType act : {DType::kF32, DType::kBF16})
    check_texts(Group(served.path(), {.method = "mtp"}, model::LoadFormat::kDummy, act, 2), 24);
}

TEST(RankDrafts, AModuleWithWholeExpertsChangesNoText) {
  const DummyFolder served("rank_drafts_experts", deepseek("21"));
  check_texts(Group(served.path(), {.method = "mtp"}, model::LoadFormat::kDummy, DType::kF32, 2,
                    Moe::kWhole),
              24);
}

TEST(RankDrafts, AnEagleHeadChangesNoText) {
  const DummyFolder served("rank_drafts_eagle", kServed);
  const DummyFolder head("rank_drafts_eagle_head", R"({
    "hidden_size": 32, "vocab_size": 96, "num_hidden_layers": 1, "intermediate_size": 40,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 60,
    "torch_dtype": "float32", "draft_vocab_size": 48,
    "eagle_aux_hidden_state_layer_ids": [0, 1, 2]})");
  for (const char* method : {"eagle", "eagle3"})
    for (const int size : {1, 2})
      check_texts(Group(served.path(), {.method = method, .model = head.path()},
                        model::LoadFormat::kDummy, size == 1 ? DType::kBF16 : DType::kF32, size),
                  24);
}

// Under the engine, as users start it.
class RankDraftsLlm : public ::testing::Test {
 protected:
  RankDraftsLlm() {
    config_.model = served_.path();
    config_.device = "reference";  // costs are not measured there: drafts are checked at once
    config_.load_format = model::LoadFormat::kDummy;
    config_.block_size = 8;
    config_.threads = 2;
    config_.quiet = true;
    config_.tensor_parallel = 2;
    config_.num_blocks_override = 64;
    config_.swap_space_gb = 0.001;
  }
  std::map<SeqId, Heard> heard(sched::DraftStats* drafts = nullptr) {
    return hear_six(config_, drafts);
  }
  void expect_as_without(const draft::Settings& settings) {
    const auto without = heard();
    config_.speculation = settings;
    for (const int tokens : {1, 2, 3}) {
      config_.speculation->tokens = tokens;
      sched::DraftStats drafts;
      const auto with = heard(&drafts);
      EXPECT_GT(drafts.drafted, 0u);
      for (const auto& [id, alone] : without) {
        EXPECT_EQ(with.at(id).tokens, alone.tokens) << tokens << " drafts, request " << id;
        EXPECT_TRUE(with.at(id).logprobs == alone.logprobs) << "request " << id;
      }
    }
  }
  std::string refusal(const draft::Settings& settings) {
    config_.speculation = settings;
    try {
      resolve(config_, read_model(config_));
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  }

  const DummyFolder served_{"rank_drafts_llm", kServed};
  const DummyFolder small_{"rank_drafts_llm_small", kSmall};
  EngineConfig config_;
};

TEST_F(RankDraftsLlm, TextsAreThoseWithoutADraftModel) {
  expect_as_without({.method = "draft_model", .model = small_.path()});
}

TEST_F(RankDraftsLlm, TextsAreThoseWithoutADraftModelOfEachRank) {
  expect_as_without({.method = "draft_model", .model = small_.path(), .ranks = 1});
}

TEST_F(RankDraftsLlm, TextsAreThoseWithoutAModule) {
  const DummyFolder deep("rank_drafts_llm_mtp", deepseek("21"));
  config_.model = deep.path();
  config_.expert_parallel = true;
  expect_as_without({.method = "mtp"});
}

TEST_F(RankDraftsLlm, WhatCannotBeCutIsRefused) {
  const DummyFolder odd("rank_drafts_odd", R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 18, "vocab_size": 96,
    "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3,
    "num_key_value_heads": 3, "max_position_embeddings": 40, "torch_dtype": "float32"})");
  EXPECT_THAT(refusal({.method = "draft_model", .model = odd.path()}),
              AllOf(HasSubstr("the 3 query heads of layer 0"),
                    HasSubstr("\"draft_tensor_parallel_size\": 1")));
  EXPECT_EQ(refusal({.method = "draft_model", .model = odd.path(), .ranks = 1}), "accepted");
  EXPECT_THAT(refusal({.method = "draft_model", .model = small_.path(), .ranks = 3}),
              HasSubstr("draft_tensor_parallel_size is 3 and --tensor-parallel-size 2"));
  const DummyFolder deep("rank_drafts_odd_mtp", deepseek("20"));
  config_.model = deep.path();
  EXPECT_EQ(refusal({.method = "mtp"}), "accepted");
  EXPECT_EQ(refusal({.method = "mtp", .ranks = 2}), "accepted");
  EXPECT_THAT(refusal({.method = "mtp", .ranks = 1}), HasSubstr("leave the key out"));
}

// A rank plans for its part of what drafts, or for all of it.
TEST_F(RankDraftsLlm, TheMemoryPlanHasTheRanksPart) {
  const auto drafter_of = [&](int ranks) {
    config_.speculation = {.method = "draft_model", .model = small_.path(), .ranks = ranks};
    const model::ModelConfig model = read_model(config_);
    const Resolved resolved = resolve(config_, model);
    StartLog log{.quiet = true};
    const auto group = std::make_unique<RankGroup>(resolved, model, log);
    EXPECT_EQ(group->rank(0).memory().kv_block, group->rank(1).memory().kv_block);
    return group->rank(1).memory();
  };
  const model::MemoryPlan cut = drafter_of(0), whole = drafter_of(1);
  // A layer's matrices: half of 2048 + 24 * 16 * 3; a half of the head of 96 rows.
  EXPECT_GT(whole.drafter, cut.drafter + 4 * (96 * 16 + 24 * 16 * 3) / 2);
  EXPECT_EQ(whole.kv_block, cut.kv_block) << "one head of keys and values is there twice";
}

}  // namespace
}  // namespace skiff::engine
