// Compares the tokenizers of real models with the reference implementations on about three hundred
// hard strings (tests/text, written by tools/text/make_vectors.py).
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <chrono>
#include <iostream>
#include <random>

#include "text/detokenizer.h"
#include "text/tokenizer_data_testing.h"

namespace skiff::text {
namespace {

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer, {});
  std::string out;
  for (const int32_t id : ids) out += detokenizer.push(id);
  return out + detokenizer.flush();
}

void expect_vectors(const Tokenizer& tokenizer, const Json& vectors) {
  const Json strings = read_json_file((kVectors / "strings.json").string());
  ASSERT_GT(strings.size(), 300u);
  for (size_t i = 0; i < strings.size(); ++i) {
    const auto text = strings[i].get<std::string>();
    const auto expected = vectors["ids"][i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, {}), expected) << strings[i];
    const std::string decoded = tokenizer.decode(expected, true);
    EXPECT_EQ(decoded, vectors["decoded"].value(std::to_string(i), text));
    // A stream keeps the space that decode() takes from the front.
    const std::string stream = streamed(tokenizer, expected);
    EXPECT_TRUE(stream == decoded || stream == " " + decoded) << strings[i] << Json(stream);
  }
}

// Random tokens are streamed as valid text.
void expect_valid_streams(const Tokenizer& tokenizer) {
  std::mt19937 random(29);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int32_t> ids(1 + random() % 30);
    std::string bytes;
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % static_cast<unsigned>(tokenizer.vocab_size()));
      if (!tokenizer.is_special(id)) bytes += tokenizer.piece(id);
    }
    EXPECT_EQ(streamed(tokenizer, ids), utf8_sanitized(bytes));
    EXPECT_TRUE(is_valid_utf8(tokenizer.decode(ids, false)));
  }
}

class Vectors : public RealTokenizer {};

TEST_P(Vectors, EqualTheReference) {
  expect_vectors(*tokenizer_, vectors_);
  expect_valid_streams(*tokenizer_);
}

// Run with --gtest_also_run_disabled_tests --gtest_filter=*Throughput*.
TEST_P(Vectors, DISABLED_Throughput) {
  const std::filesystem::path source = SKIFF_SOURCE_DIR "/src/text/tokenizer.cc";
  const std::string sources = contents(source) + contents(kVectors / "strings.json");
  std::string text;
  while (text.size() < 1'000'000) text += sources;
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const size_t tokens = tokenizer_->encode(text, {}).size();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << GetParam() << ": " << tokens << " tokens, "
              << static_cast<double>(text.size()) / took.count() / 1e6 << " MB/s\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Vectors, kRealTokenizers,
                         [](const auto& info) { return test_name(info.param); });

Json tokenizer_files(const char* folder, const std::vector<const char*>& names) {
  Json files = Json::object();
  for (const char* name : names) files[name] = fmt::format("tokenizers/{}/{}", folder, name);
  return files;
}

// Both files of one vocabulary give the same tokenizer.
TEST(RealTokenizers, SpecialTextAcrossFormats) {
  const TempFolder json, model;
  const bool found = gather(tokenizer_files("llama-2-7b", {"tokenizer.json"}), json) &&
                     gather(tokenizer_files("llama-2-7b", {"tokenizer.model"}), model);
  if (!found) GTEST_SKIP() << "Llama 2's tokenizer is not in " << kData;
  const auto a = load_tokenizer(json.path()), b = load_tokenizer(model.path());
  ASSERT_TRUE(a && b);
  for (const char* text : {"<s>[INST] Hi [/INST] yes </s><s>[INST] x [/INST]", "a</s>b", "<unk>"})
    EXPECT_EQ((*a)->encode(text, {}), (*b)->encode(text, {})) << text;
}

// tokenizer_config.json names the special tokens of later releases; the rank file does not.
TEST(RealTokenizers, RankFileWithConfiguration) {
  const TempFolder folder;
  Json files = tokenizer_files("llama3-tiktoken", {"tokenizer.model"});
  files.update(tokenizer_files("llama-3-8b", {"tokenizer_config.json"}));
  if (!gather(files, folder)) GTEST_SKIP() << "Llama 3's tokenizer is not in " << kData;
  const auto made = load_tokenizer(folder.path());
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ((*made)->encode("<|eot_id|>a<|reserved_special_token_250|>", {}),
            (std::vector<int32_t>{128000, 128009, 64, 128255}));
  EXPECT_EQ((*made)->vocab_size(), 128256);
  EXPECT_EQ((*made)->eos(), "<|end_of_text|>");
}

}  // namespace
}  // namespace skiff::text
