// Heads of EAGLE and EAGLE 3, against what numpy computes of them (tools/golden/make_eagle.py), and
// the rows of the served model that those of EAGLE 3 take.
#include "model/eagle.h"

#include <gmock/gmock.h>
#include <skiff_test_paths.h>

#include <cmath>
#include <cstring>

#include "base/load_error.h"
#include "engine/ear_testing.h"
#include "engine/llm.h"
#include "engine/module_testing.h"
#include "engine/resolve.h"
#include "engine/six_requests_testing.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string eagle_dir(const std::string& method) {
  return std::string(SKIFF_SOURCE_DIR) + "/tests/golden_eagle/" + method;
}

// What the heads were made for: of a model's configuration only what they are compared with.
model::ModelConfig served_for(const std::string& method) {
  model::ModelConfig served;
  served.spec = {.arch = "LlamaForCausalLM", .hidden = 32, .vocab = 112};
  served.spec.layers.resize(6);
  if (method == "eagle3") served.spec.taps = model::eagle_taps(eagle_dir(method), served.spec);
  return served;
}

struct Case {
  std::string method;
  std::unique_ptr<Ops> (*backend)();
};

std::unique_ptr<Ops> two_threads() { return make_cpu_ops(2); }

class EagleGolden : public ::testing::TestWithParam<Case> {
 protected:
  static ModuleGolden golden() {
    return ModuleGolden([](const model::RankOf& rank) {
      const std::string& method = GetParam().method;
      DrafterSource source =
          *find_drafter({.method = method, .model = eagle_dir(method)}, "", served_for(method),
                        uniform_precision(DType::kF32), rank.size);
      take_part(source, rank.rank);
      return std::make_unique<Module>(eagle_dir(method), source, GetParam().backend());
    });
  }
};

TEST_P(EagleGolden, DraftsAreThoseOfNumpy) { golden().expect_drafts(); }
TEST_P(EagleGolden, DraftsOfTwoRanksAreThoseOfNumpy) { golden().expect_drafts_of_two_ranks(); }
TEST_P(EagleGolden, DraftsBehindAPauseAreThoseOfNumpy) { golden().expect_drafts_behind_pauses(); }
TEST_P(EagleGolden, DraftsBehindTwoInFlightAreThoseOfNumpy) { golden().expect_drafts_in_flight(); }
TEST_P(EagleGolden, LogitsAreThoseOfNumpy) { golden().expect_logits(1e-3f); }  // they reach 16

INSTANTIATE_TEST_SUITE_P(
    All, EagleGolden,
    ::testing::Values(Case{"eagle", make_reference_ops}, Case{"eagle", two_threads},
                      Case{"eagle3", make_reference_ops}, Case{"eagle3", two_threads}),
    [](const auto& info) {
      return info.param.method + (info.param.backend == two_threads ? "_cpu" : "_reference");
    });

constexpr const char* kSixLayers = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 96,
  "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})";

// The residual before a layer, behind the last norm, is what a model without the layers from that
// one on ends with.
TEST(Eagle, TapsAreTheResidualBeforeLayers) {
  const DummyFolder folder("eagle_taps", kSixLayers);
  const auto ops = make_cpu_ops(2);
  const auto load = [&](int layers) {
    model::ModelConfig config = model::read_model_config(folder.path());
    model::LoadedModel model = model::load_model(folder.path(), config,
                                                 {.precision = uniform_precision(DType::kF32),
                                                  .format = model::LoadFormat::kDummy,
                                                  .dummy_seed = 5},
                                                 *ops);
    model.spec.layers.resize(static_cast<size_t>(layers));
    model.weights.layers.resize(static_cast<size_t>(layers));
    return model;
  };
  const std::vector<Token> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  model::LoadedModel whole = load(6);
  whole.spec.taps = {0, 2, 6, 3};
  const Computed tapped(whole, *ops, tokens);
  ASSERT_EQ(tapped.out.taps.cols(), 4 * 32);
  for (size_t i = 0; i < whole.spec.taps.size(); ++i) {
    const model::LoadedModel part = load(whole.spec.taps[i]);
    const Computed cut(part, *ops, tokens);
    EXPECT_EQ(cut.out.taps.rows(), 0) << "nothing is shown unasked";
    for (int64_t r = 0; r < std::ssize(tokens); ++r) {
      const float* row = tapped.out.taps.row<float>(r) + 32 * i;
      float squares = 0;
      for (int c = 0; c < 32; ++c) squares += row[c] * row[c];
      const float scale = 1 / std::sqrt(squares / 32 + part.weights.norm.eps);
      for (int c = 0; c < 32; ++c)
        ASSERT_NEAR(row[c] * scale * part.weights.norm.weight.as<float>()[c],
                    cut.out.hidden.row<float>(r)[c], 1e-5)
            << "tap " << i << ", row " << r;
    }
  }
}

std::string head_config(const std::string& more) {
  return R"({"hidden_size": 32, "vocab_size": 96, "num_hidden_layers": 1, "intermediate_size": 40,
             "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
             "torch_dtype": "float32")" +
         more + "}";
}
constexpr const char* kDraftVocab = R"(, "draft_vocab_size": 48)";

TEST(Eagle, TapsAreThoseThatAreAskedFor) {
  ModelSpec served;
  served.layers.resize(32);
  const auto taps = [&](const std::string& more) {
    const DummyFolder head("eagle_asked", head_config(more));
    return model::eagle_taps(head.path(), served);
  };
  EXPECT_THAT(taps(""), ElementsAre(2, 16, 29));
  EXPECT_THAT(taps(R"(, "eagle_aux_hidden_state_layer_ids": [1, 32])"), ElementsAre(1, 32));
  EXPECT_THAT(taps(R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0]})"),
              ElementsAre(0));
  EXPECT_THAT(taps(R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": null})"),
              ElementsAre(2, 16, 29));
  const auto refusal = [&](const std::string& more) -> std::string {
    try {
      taps(more);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(R"(, "eagle_aux_hidden_state_layer_ids": [1, 33])"), HasSubstr("has 33"));
  EXPECT_THAT(refusal(R"(, "eagle_aux_hidden_state_layer_ids": ["a"])"), HasSubstr("has \"a\""));
  EXPECT_THAT(refusal(R"(, "eagle_aux_hidden_state_layer_ids": [])"), HasSubstr("1 to 16 layers"));
  served.layers.resize(5);
  EXPECT_THAT(refusal(""), HasSubstr("5 layers are too few"));
}

std::string refusal_of(const std::string& method, const model::ModelConfig& served,
                       const std::string& folder) {
  try {
    find_drafter({.method = method, .model = folder}, "", served, uniform_precision(DType::kF32),
                 1);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Eagle, HeadsThatDoNotFitAreRefused) {
  for (const std::string method : {"eagle", "eagle3"}) {
    model::ModelConfig served = served_for(method);
    EXPECT_EQ(refusal_of(method, served, eagle_dir(method)), "accepted");
    served.spec.vocab = 113;
    EXPECT_THAT(refusal_of(method, served, eagle_dir(method)),
                HasSubstr("a vocabulary of 112, the served model of 113"));
    served.spec.hidden = 64;
    EXPECT_THAT(refusal_of(method, served, eagle_dir(method)), HasSubstr("hidden size of 32"));
    EXPECT_THAT(refusal_of(method, served, "/nowhere"), HasSubstr("/nowhere has no config.json"));
  }
  const DummyFolder residual("eagle_residual", head_config(R"(, "norm_before_residual": true)"));
  model::ModelConfig served = served_for("eagle3");
  served.spec.vocab = 96;
  EXPECT_THAT(refusal_of("eagle3", served, residual.path()), HasSubstr("norm_before_residual"));
}

// A head's list of tokens is read from a file that anybody may have made.
TEST(Eagle, TokensOfAHeadAreChecked) {
  ModelSpec spec{.vocab = 10};
  spec.draft_vocab = 3;
  const DummyFolder folder("eagle_tokens", "{}");
  const auto tokens = [&](const std::string& name, const std::vector<int64_t>& more) {
    std::string bytes(more.size() * sizeof(int64_t), '\0');
    std::memcpy(bytes.data(), more.data(), bytes.size());
    skiff::testing::write_file(
        folder.path() + "/model.safetensors",
        skiff::testing::safetensors_bytes({{name, "I64", {std::ssize(more)}, bytes}}));
    return model::eagle_tokens(folder.path(), spec);
  };
  EXPECT_THAT(tokens("d2t", {0, 4, 7}), ElementsAre(0, 5, 9));
  EXPECT_THAT(tokens("d2t", {9, -1, -2}), ElementsAre(9, 0, 0));
  const auto refusal = [&](const std::string& name,
                           const std::vector<int64_t>& more) -> std::string {
    try {
      tokens(name, more);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("d2t", {0, 4, 8}), HasSubstr("has 8 for row 2"));
  EXPECT_THAT(refusal("d2t", {0, -2, 0}), HasSubstr("has -2 for row 1"));
  EXPECT_THAT(refusal("d2t", {0, int64_t{1} << 62, 0}), HasSubstr("for row 1"));
  EXPECT_THAT(refusal("d2t", {0, 0}), HasSubstr("must be 3 numbers of I64"));
  EXPECT_THAT(refusal("t2d", {0, 0, 0}), HasSubstr("\"d2t\" is missing"));
  spec.draft_vocab = 10;
  EXPECT_THAT(tokens("t2d", {0}), ::testing::IsEmpty());
}

// Under the engine, as users start it, on one rank and on two: texts are those without drafts.
class EagleLlm : public ::testing::TestWithParam<std::string> {
 protected:
  EagleLlm() {
    config_.model = served_.path();
    config_.device = "reference";  // costs are not measured there: drafts are checked at once
    config_.load_format = model::LoadFormat::kDummy;
    config_.block_size = 8;
    config_.threads = 2;
    config_.quiet = true;
    config_.num_blocks_override = 64;
  }
  std::map<SeqId, Heard> heard(sched::DraftStats* drafts = nullptr) {
    return hear_six(config_, drafts);
  }

  const DummyFolder served_{"eagle_llm", kSixLayers};
  const DummyFolder head_{"eagle_llm_head", head_config(kDraftVocab)};
  EngineConfig config_;
};

TEST_P(EagleLlm, TextsAreThoseWithout) {
  for (const int ranks : {1, 2}) {
    config_.tensor_parallel = ranks;
    config_.speculation.reset();
    const auto without = heard();
    for (const int tokens : {1, 3}) {
      config_.speculation = {.method = GetParam(), .tokens = tokens, .model = head_.path()};
      sched::DraftStats drafts;
      const auto with = heard(&drafts);
      EXPECT_GT(drafts.drafted, 0u);
      for (const auto& [id, alone] : without) {
        EXPECT_EQ(with.at(id).tokens, alone.tokens) << ranks << " ranks, request " << id;
        EXPECT_TRUE(with.at(id).logprobs == alone.logprobs) << "request " << id;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, EagleLlm, ::testing::Values("eagle", "eagle3"));

}  // namespace
}  // namespace skiff::engine
