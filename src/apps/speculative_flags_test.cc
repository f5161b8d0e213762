#include "apps/speculative_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "apps/draft_tokens.h"
#include "base/json.h"
#include "base/load_error.h"

namespace skiff::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::optional<draft::Settings> settings_of(const std::vector<std::string>& words) {
  engine::EngineConfig config;
  read_speculation(Args(kServe, words), config);
  return config.speculation;
}

std::string refusal(const std::string& json, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--speculative-config", json});
  try {
    settings_of(more);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SpeculativeFlags, NothingIsDraftedUnlessAsked) { EXPECT_EQ(settings_of({}), std::nullopt); }

TEST(SpeculativeFlags, NamesOfFastDeployAndOfVllm) {
  const draft::Settings want{.method = "ngram", .tokens = 3, .min_ngram = 3, .max_ngram = 4};
  EXPECT_EQ(settings_of({"--speculative-config",
                         R"({"method": "ngram", "num_speculative_tokens": 3, "max_ngram_size": 4,
                             "min_ngram_size": 3, "verify_strategy": "target_match",
                             "benchmark_mode": false, "accept_policy": "normal"})"}),
            want);
  EXPECT_EQ(settings_of({"--speculative-config",
                         R"({"method": "ngram", "num_speculative_tokens": 3,
                             "prompt_lookup_max": 4, "prompt_lookup_min": 3})"}),
            want);
  EXPECT_EQ(settings_of({"--speculative-method", "ngram_match", "--num-speculative-tokens", "3",
                         "--speculative-max-ngram-size", "4", "--speculative-min-ngram-size", "3"}),
            want);
}

TEST(SpeculativeFlags, OneBoundOfTheNgramsMovesTheOther) {
  EXPECT_EQ(settings_of({"--speculative-config", R"({"method": "ngram", "max_ngram_size": 1})"})
                ->min_ngram,
            1);
  EXPECT_EQ(settings_of({"--speculative-config", R"({"method": "ngram", "min_ngram_size": 9})"})
                ->max_ngram,
            9);
}

TEST(SpeculativeFlags, Suffix) {
  const auto settings = settings_of({"--speculative-config",
                                     R"({"method": "suffix", "suffix_decoding_max_tree_depth": 24,
           "suffix_decoding_max_spec_factor": 1.5, "suffix_decoding_max_cached_requests": 0})"});
  EXPECT_EQ(settings->max_depth, 24);
  EXPECT_EQ(settings->max_factor, 1.5);
}

TEST(SpeculativeFlags, WhatIsNotThereIsRefusedByName) {
  for (const char* method : {"medusa", "hydra"})
    EXPECT_THAT(refusal(std::string(R"({"method": ")") + method + R"("})"),
                AllOf(HasSubstr(method), HasSubstr("ngram, suffix")));
  EXPECT_THAT(refusal(R"({"method": "ngrams"})"), HasSubstr("\"ngrams\"; it must be one of ngram"));
  const auto with = [](const std::string& key) {
    return refusal(R"({"method": "ngram", )" + key + "}");
  };
  EXPECT_THAT(with(R"("model": "x")"), HasSubstr("model has no effect with method ngram"));
  EXPECT_THAT(with(R"("num_model_steps": 1)"), HasSubstr("num_model_steps has no effect"));
  EXPECT_THAT(with(R"("k": 3)"), AllOf(HasSubstr("no key \"k\""), HasSubstr("max_ngram_size")));
}

TEST(SpeculativeFlags, VerifyStrategies) {
  const auto check = [](const std::string& keys) {
    return settings_of({"--speculative-config", R"({"method": "ngram", )" + keys + "}"})->check;
  };
  EXPECT_EQ(check(R"("verify_strategy": "target_match")"), DraftCheck{});
  EXPECT_EQ(check(R"("verify_strategy": "greedy")").rule, DraftRule::kGreedy);
  EXPECT_EQ(check(R"("verify_strategy": "rejection")").rule, DraftRule::kRejection);
  const DraftCheck topp =
      check(R"("verify_strategy": "topp", "verify_window": 3, "max_candidate_len": 8)");
  EXPECT_EQ(topp, (DraftCheck{.rule = DraftRule::kTopP, .candidates = 8, .window = 3}));
  const DraftCheck relaxed = check(
      R"("verify_strategy": "relaxed", "relaxed_topk": 4, "relaxed_delta": 0.5,
         "begin_thinking_phase_token": 128798, "end_thinking_phase_token": 128799)");
  EXPECT_EQ(relaxed.rule, DraftRule::kRelaxed);
  EXPECT_EQ(relaxed.best, 4);
  EXPECT_EQ(relaxed.delta, 0.5f);
  EXPECT_EQ(relaxed.think_begin, 128798);
  EXPECT_EQ(relaxed.think_end, 128799);
}

TEST(SpeculativeFlags, WrongVerifyStrategiesAreRefused) {
  const auto with = [](const std::string& keys) {
    return refusal(R"({"method": "ngram", )" + keys + "}");
  };
  EXPECT_THAT(with(R"("verify_strategy": "typical")"),
              AllOf(HasSubstr("typical"), HasSubstr("rejection"), HasSubstr("relaxed")));
  EXPECT_THAT(with(R"("verify_window": 2)"), HasSubstr("\"verify_strategy\": \"topp\""));
  EXPECT_THAT(with(R"("relaxed_topk": 2)"), HasSubstr("\"verify_strategy\": \"relaxed\""));
  EXPECT_THAT(with(R"("verify_strategy": "topp", "max_candidate_len": 33)"), HasSubstr("33"));
  EXPECT_THAT(with(R"("verify_strategy": "relaxed")"), HasSubstr("begin_thinking_phase_token"));
  EXPECT_THAT(with(R"("verify_strategy": "relaxed", "relaxed_delta": 2)"), HasSubstr("0 to 1"));
}

TEST(SpeculativeFlags, VerdictsAreForcedInBenchmarksOnly) {
  const auto rate = [](const std::string& keys) {
    engine::EngineConfig config;
    const std::vector<std::string> words{"--speculative-config",
                                         R"({"method": "mtp")" + keys + "}"};
    read_speculation(Args(kBench, words), config);
    return config.speculation->forced_rate;
  };
  EXPECT_EQ(rate(""), std::nullopt);
  EXPECT_EQ(rate(R"(, "benchmark_mode": false, "accept_policy": "normal")"), std::nullopt);
  EXPECT_EQ(rate(R"(, "benchmark_mode": true)"), 0.8);
  EXPECT_EQ(rate(R"(, "benchmark_mode": true, "benchmark_acceptance_rate": 0.5)"), 0.5);
  EXPECT_EQ(rate(R"(, "benchmark_mode": true, "accept_policy": "accept_all")"), 1);
  EXPECT_EQ(rate(R"(, "benchmark_mode": true, "accept_policy": "reject_all")"), 0);
  const auto with = [](const std::string& key) {
    return refusal(R"({"method": "ngram", )" + key + "}");
  };
  EXPECT_THAT(with(R"("benchmark_mode": true)"), HasSubstr("only skiff bench has it"));
  EXPECT_THAT(with(R"("benchmark_mode": 1)"), HasSubstr("must be true or false"));
  EXPECT_THAT(with(R"("accept_policy": "accept_all")"),
              AllOf(HasSubstr("accept_policy"), HasSubstr("benchmark_mode")));
  EXPECT_THAT(with(R"("accept_policy": "some")"), HasSubstr("reject_all"));
  EXPECT_THAT(with(R"("benchmark_acceptance_rate": 0.5)"), HasSubstr("without \"benchmark_mode\""));
  EXPECT_THAT(with(R"("benchmark_acceptance_rate": 1.5)"), HasSubstr("from 0 to 1"));
  EXPECT_THROW(
      rate(
          R"(, "benchmark_mode": true, "accept_policy": "accept_all", "benchmark_acceptance_rate": 1)"),
      UsageError);
}

TEST(SpeculativeFlags, Mtp) {
  const auto of = [](const std::string& json) {
    return settings_of({"--speculative-config", json});
  };
  const draft::Settings want{.method = "mtp", .tokens = 1};
  EXPECT_EQ(of(R"({"method": "mtp"})"), want);
  EXPECT_EQ(of(R"({"method": "mtp", "num_model_steps": 1, "mtp_strategy": "default",
                   "num_gpu_block_expand_ratio": 1, "quantization": null})"),
            want);
  EXPECT_EQ(of(R"({"method": "mtp", "num_model_steps": 3, "num_speculative_tokens": 3,
                   "model": "m/mtp"})"),
            (draft::Settings{.method = "mtp", .tokens = 3, .model = "m/mtp"}));
  EXPECT_EQ(of(R"({"method": "mtp", "draft_tensor_parallel_size": 4})")->ranks, 4);
  for (const char* wrong : {"0", "65", "\"2\""})
    EXPECT_THAT(
        refusal(std::string(R"({"method": "mtp", "draft_tensor_parallel_size": )") + wrong + "}"),
        HasSubstr("it must be a number from 1 to 64"));
  EXPECT_THAT(refusal(R"({"method": "mtp", "num_model_steps": 1, "num_speculative_tokens": 2})"),
              HasSubstr("num_model_steps is 1 and num_speculative_tokens 2"));
  EXPECT_EQ(of(R"({"method": "mtp", "quantization": "wint8"})")->quantization, "wint8");
  EXPECT_THAT(refusal(R"({"method": "mtp", "quantization": 8})"),
              HasSubstr("a name that --quantization knows, or null"));
  EXPECT_THAT(refusal(R"({"method": "ngram", "quantization": "wint8"})"), HasSubstr("no effect"));
  EXPECT_TRUE(of(R"({"method": "mtp", "enable_draft_logprob": true})")->logprobs);
  EXPECT_THAT(refusal(R"({"method": "mtp", "enable_draft_logprob": 1})"),
              HasSubstr("must be true or false"));
  EXPECT_THAT(refusal(R"({"method": "ngram", "enable_draft_logprob": true})"),
              HasSubstr("no effect with method ngram"));
  EXPECT_THAT(refusal(R"({"method": "mtp", "model": 3})"), HasSubstr("must be a folder"));
  EXPECT_THAT(refusal(R"({"method": "mtp", "max_ngram_size": 3})"), HasSubstr("no effect"));
}

// FastDeploy's example of both.
TEST(SpeculativeFlags, MtpWithNgrams) {
  const std::string with = R"({"method": "mtp", "mtp_strategy": "with_ngram")";
  const auto of = [&](const std::string& keys) {
    return settings_of({"--speculative-config", with + keys + "}"});
  };
  draft::Settings want{.method = "mtp", .tokens = 5, .model_steps = 2};
  EXPECT_EQ(of(R"(, "num_model_steps": 2, "num_speculative_tokens": 5)"), want);
  EXPECT_EQ(want.model_tokens(), 2);
  EXPECT_TRUE(want.then_ngram());
  want.model_steps = 1;
  want.max_ngram = 3;
  EXPECT_EQ(of(R"(, "num_speculative_tokens": 5, "max_ngram_size": 3)"), want);
  EXPECT_FALSE(draft::Settings{.method = "mtp"}.then_ngram());
  const auto refused = [&](const std::string& keys) { return refusal(with + keys + "}"); };
  EXPECT_THAT(refused(""), HasSubstr("n-grams of the text would make no draft"));
  EXPECT_THAT(refused(R"(, "num_model_steps": 2)"), HasSubstr("it cannot be more"));
  EXPECT_THAT(refused(R"(, "num_model_steps": 17)"), HasSubstr("from 1 to 16"));
  EXPECT_THAT(refusal(R"({"method": "mtp", "mtp_strategy": "ngram"})"),
              HasSubstr("must be \"default\""));
  EXPECT_THAT(refusal(R"({"method": "eagle", "model": "m", "mtp_strategy": "with_ngram"})"),
              HasSubstr("no effect with method eagle"));
}

TEST(SpeculativeFlags, NaiveSpeculatesNothing) {
  EXPECT_EQ(settings_of({"--speculative-config", R"({"method": "naive"})"}), std::nullopt);
  EXPECT_THAT(refusal(R"({"method": "naive", "model": "x"})"), HasSubstr("no effect"));
}

TEST(SpeculativeFlags, DraftModel) {
  EXPECT_EQ(settings_of({"--speculative-config", R"({"method": "draft_model", "model": "small"})"}),
            (draft::Settings{.method = "draft_model", .tokens = 5, .model = "small"}));
  EXPECT_THAT(refusal(R"({"method": "draft_model"})"), HasSubstr("needs \"model\""));
  EXPECT_THAT(refusal(R"({"method": "draft_model", "model": "m", "num_model_steps": 5})"),
              HasSubstr("no effect with method draft_model"));
}

TEST(SpeculativeFlags, Eagle) {
  for (const std::string method : {"eagle", "eagle3"}) {
    const std::string with = R"({"method": ")" + method + "\"";
    EXPECT_EQ(settings_of({"--speculative-config", with + R"(, "model": "head"})"}),
              (draft::Settings{.method = method, .tokens = 3, .model = "head"}));
    EXPECT_THAT(refusal(with + "}"), HasSubstr("needs \"model\", the folder of a head"));
  }
}

// A tokenizer in a folder, as its list of tokens with special ones in front.
class DraftTokens : public testing::Test {
 protected:
  std::string folder(const std::string& name, const std::vector<std::string>& words) {
    const auto path = std::filesystem::path(testing::TempDir()) / ("skiff_tokens_" + name);
    std::filesystem::create_directories(path);
    Json vocab = Json::object();
    for (size_t i = 0; i < words.size(); ++i) vocab[words[i]] = i;
    const Json json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
    std::ofstream(path / "tokenizer.json") << json.dump();
    return path.string();
  }
  static std::string refused(const std::string& served, const std::string& drafter) {
    try {
      check_draft_tokens(served, drafter);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(DraftTokens, OtherTokensAreRefused) {
  const std::string served = folder("served", {"a", "b", "c"});
  EXPECT_EQ(refused(served, folder("same", {"a", "b", "c"})), "accepted");
  EXPECT_THAT(refused(served, folder("more", {"a", "b", "c", "d"})),
              HasSubstr("has 4 tokens, that of the served model 3"));
  EXPECT_THAT(refused(served, folder("other", {"a", "x", "c"})),
              AllOf(HasSubstr("token 1 is \"x\""), HasSubstr("\"b\" in the served model")));
  EXPECT_EQ(refused(served, "/nowhere"), "accepted") << "a folder may have no tokenizer";
}

TEST(SpeculativeFlags, WrongValuesAreRefusedWithTheirBounds) {
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("\"method\" is missing"));
  EXPECT_THAT(refusal(R"({"method": 3})"), HasSubstr("must be a string"));
  for (const char* wrong : {"0", "17", "2.5", "\"3\"", "99999999999999"})
    EXPECT_THAT(
        refusal(std::string(R"({"method": "ngram", "num_speculative_tokens": )") + wrong + "}"),
        HasSubstr("num_speculative_tokens is " + std::string(wrong) +
                  "; it must be a number from 1 to 16"));
  EXPECT_THAT(refusal(R"({"method": "ngram", "max_ngram_size": 2, "min_ngram_size": 3})"),
              HasSubstr("min_ngram_size is 3, more than max_ngram_size"));
  EXPECT_THAT(refusal(R"({"method": "suffix", "suffix_decoding_max_spec_factor": 0})"),
              HasSubstr("above 0"));
}

TEST(SpeculativeFlags, WhatContradictsItselfIsRefused) {
  EXPECT_THAT(refusal(R"({"method": "suffix", "max_ngram_size": 2})"),
              HasSubstr("no effect with method suffix"));
  EXPECT_THAT(refusal(R"({"method": "ngram", "suffix_decoding_max_tree_depth": 2})"),
              HasSubstr("no effect with method ngram"));
  EXPECT_THAT(refusal(R"({"method": "ngram", "max_ngram_size": 2, "prompt_lookup_max": 2})"),
              HasSubstr("are the same; give one of them"));
  EXPECT_THAT(refusal(R"({"method": "ngram"})", {"--speculative-method", "ngram"}),
              HasSubstr("--speculative-method and \"method\""));
}

}  // namespace
}  // namespace skiff::apps
