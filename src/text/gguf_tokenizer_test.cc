// The tokenizer inside a GGUF file gives the tokens of the tokenizer.json that it was written from.
#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <zlib.h>

#include "base/load_error.h"
#include "gguf/gguf_writer_testing.h"
#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string unpacked(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string out(64 << 20, '\0');
  const int size = file ? gzread(file, out.data(), static_cast<unsigned>(out.size())) : 0;
  if (file) gzclose(file);
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

// What llama.cpp's converter keeps of a tokenizer.json: tokens with their types, and merges.
Json metadata_of(const Json& file, const std::string& pre) {
  constexpr int kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;
  int64_t size = 0;
  for (const auto& [text, id] : file["model"]["vocab"].items())
    size = std::max(size, id.get<int64_t>() + 1);
  for (const Json& token : file["added_tokens"])
    size = std::max(size, token["id"].get<int64_t>() + 1);
  std::vector<std::string> tokens(static_cast<size_t>(size));
  std::vector<int> types(tokens.size(), kUnused);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = "[PAD" + std::to_string(i) + "]";
  for (const auto& [text, id] : file["model"]["vocab"].items()) {
    tokens[id.get<size_t>()] = text;
    types[id.get<size_t>()] = kNormal;
  }
  for (const Json& token : file["added_tokens"]) {
    tokens[token["id"].get<size_t>()] = token["content"].get<std::string>();
    types[token["id"].get<size_t>()] = token.value("special", false) ? kControl : kUserDefined;
  }
  Json merges = Json::array();
  for (const Json& merge : file["model"]["merges"])
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return {{"general.architecture", "llama"},    {"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", pre},          {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", types}, {"tokenizer.ggml.merges", merges}};
}

std::unique_ptr<Tokenizer> load(const TempFolder& folder, const Json& metadata) {
  folder.write("model.gguf", skiff::testing::gguf_bytes(metadata, {}));
  return std::move(*load_gguf_tokenizer(folder.path() + "/model.gguf"));
}

struct Published {
  const char *folder, *pre;
};

class GgufTokenizer : public ::testing::TestWithParam<Published> {};

TEST_P(GgufTokenizer, GivesThePublishedTokens) {
  const fs::path path =
      fs::path(SKIFF_SHARED_DIR) / "data/tokenizers" / GetParam().folder / "tokenizer.json.gz";
  const auto file = parse_json(unpacked(path));
  if (!file) GTEST_SKIP() << path << " is not there";
  const TempFolder folder;
  const auto met = load(folder, metadata_of(*file, GetParam().pre));
  const auto want = tokenizer_of(*file);
  for (const char* list : {"strings.json", "hard_strings.json"}) {
    const fs::path strings = fs::path(SKIFF_SOURCE_DIR) / "tests/text" / list;
    for (const Json& json : read_json_file(strings.string())) {
      const auto text = json.get<std::string>();
      ASSERT_EQ(encode_plainly(*met, text), encode_plainly(*want, text)) << json;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufTokenizer,
                         ::testing::Values(Published{"deepseek-r1", "deepseek-v3"},
                                           Published{"qwen2.5", "qwen2"},
                                           Published{"llama3-hf-via-bitnet", "llama-bpe"}),
                         [](const auto& info) {
                           std::string name = info.param.pre;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Llama 3's files have no key for BOS; where they have, it counts.
TEST(GgufTokenizerConfig, Llama3BeginsWithBos) {
  Json metadata = metadata_of(tiny_tokenizer_json(), "llama-bpe");
  const TempFolder folder;
  const auto adds_bos = [&](const Json& keys) {
    load(folder, keys);
    return tokenizer_config_of_gguf(folder.path())->at("add_bos_token").get<bool>();
  };
  EXPECT_TRUE(adds_bos(metadata));
  metadata["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_FALSE(adds_bos(metadata));
  EXPECT_FALSE(adds_bos(metadata_of(tiny_tokenizer_json(), "qwen2")));
}

TEST(GgufTokenizerConfig, UnknownSplittingsAreRefusedByName) {
  const TempFolder folder;
  EXPECT_THAT([&] { load(folder, metadata_of(tiny_tokenizer_json(), "deepseek-llm")); },
              ::testing::ThrowsMessage<LoadError>(HasSubstr("deepseek-llm")));
}

}  // namespace
}  // namespace skiff::text
