// Tests which tokens end a reply.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/commands.h"

namespace skiff::apps {
namespace {

using ::testing::ElementsAre;

// A tokenizer that knows one token, its EOS.
class OneToken final : public text::Tokenizer {
 public:
  explicit OneToken(std::optional<Token> eos) : eos_(eos) {}

  std::vector<int32_t> encode(std::string_view, const text::EncodeOptions&) const override {
    return {};
  }
  std::string_view piece(int32_t) const override { return {}; }
  bool is_special(int32_t) const override { return true; }
  int vocab_size() const override { return 10; }
  std::optional<int32_t> find(std::string_view text) const override {
    return text == "<end>" ? eos_ : std::nullopt;
  }
  std::string bos() const override { return {}; }
  std::string eos() const override { return eos_ ? "<end>" : ""; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }

 private:
  std::optional<Token> eos_;
};

std::vector<Token> ends(std::vector<int32_t> configured, std::optional<Token> tokenizer) {
  model::ModelConfig model;
  model.spec.vocab = 10;
  model.generation.eos = std::move(configured);
  const OneToken one(tokenizer);
  return eos_tokens(model, &one);
}

TEST(EosTokens, TheTokenizersIsOneOfThem) {
  EXPECT_THAT(ends({2}, 4), ElementsAre(2, 4));
  EXPECT_THAT(ends({}, 4), ElementsAre(4));
  EXPECT_THAT(ends({4, 2}, 4), ElementsAre(4, 2));
  EXPECT_THAT(ends({2}, std::nullopt), ElementsAre(2));
  EXPECT_THAT(ends({}, std::nullopt), ElementsAre());
}

// The model has no logit for such a token, so none may be edited.
TEST(EosTokens, IdsBeyondTheVocabularyAreLeftOut) {
  EXPECT_THAT(ends({10, 9, 1 << 24}, 11), ElementsAre(9));
}

TEST(EosTokens, NoTokenizerIsNeeded) {
  model::ModelConfig model;
  model.spec.vocab = 10;
  model.generation.eos = {3};
  EXPECT_THAT(eos_tokens(model, nullptr), ElementsAre(3));
}

}  // namespace
}  // namespace skiff::apps
