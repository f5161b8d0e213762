// The tokenizer inside a GGUF file gives the tokens of the tokenizer.json that it was written from.
#include "text/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <skiff_test_paths.h>
#include <zlib.h>

#include "base/load_error.h"
#include "gguf/gguf_writer_testing.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Types of tokens.
enum : int { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

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

// The metadata of a GGUF file with a tokenizer of SentencePiece is made of these.
struct Piece {
  std::string text;
  float score;
  int type;
};
Json metadata_of(const std::vector<Piece>& pieces) {
  Json metadata = {{"general.architecture", "llama"},
                   {"tokenizer.ggml.model", "llama"},
                   {"tokenizer.ggml.bos_token_id", 1u},
                   {"tokenizer.ggml.eos_token_id", 2u}};
  for (const Piece& piece : pieces) {
    metadata["tokenizer.ggml.tokens"].push_back(piece.text);
    metadata["tokenizer.ggml.scores"].push_back(piece.score);
    metadata["tokenizer.ggml.token_type"].push_back(piece.type);
  }
  return metadata;
}

// Ids: <unk> 0, <s> 1, </s> 2, bytes 3..258, "▁" 259, "a" 260, "b" 261, "▁a" 262, "▁ab" 263.
std::vector<Piece> tiny_pieces() {
  std::vector<Piece> pieces = {{"<unk>", 0, kUnknown}, {"<s>", 0, kControl}, {"</s>", 0, kControl}};
  for (int byte = 0; byte < 256; ++byte)
    pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, kByte});
  for (const auto& [text, score] :
       {std::pair("▁", -5), {"a", -6}, {"b", -7}, {"▁a", -1}, {"▁ab", -2}})
    pieces.push_back({text, static_cast<float>(score), kNormal});
  return pieces;
}

std::unique_ptr<Tokenizer> load(const TempFolder& folder, const Json& metadata) {
  folder.write("model.gguf", skiff::testing::gguf_bytes(metadata, {}));
  return std::move(*load_gguf_tokenizer(folder.path() + "/model.gguf"));
}

std::string refusal(const Json& metadata) {
  const TempFolder folder;
  try {
    load(folder, metadata);
    return "accepted";
  } catch (const LoadError& e) {
    return e.what();
  }
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
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

// Chat templates write <s> themselves, and models were trained with a space behind it.
TEST(GgufTokenizer, TextBehindASpecialTokenBeginsWithASpace) {
  const TempFolder folder;
  Json metadata = metadata_of(tiny_pieces());
  const auto tokenizer = load(folder, metadata);
  EXPECT_THAT(ids_of(*tokenizer, "<s>ab"), ElementsAre(1, 263));
  EXPECT_THAT(ids_of(*tokenizer, "ab</s>a"), ElementsAre(263, 2, 262));
  metadata["tokenizer.ggml.add_space_prefix"] = false;
  EXPECT_THAT(ids_of(*load(folder, metadata), "<s>ab</s>a"), ElementsAre(1, 260, 261, 2, 260));
}

std::vector<Piece> pieces_of(const fs::path& path) {
  sentencepiece::SentencePieceProcessor model;
  std::vector<Piece> pieces;
  if (!model.Load(path.string()).ok()) return pieces;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    int type = kNormal;
    if (model.IsUnknown(id)) type = kUnknown;
    if (model.IsControl(id)) type = kControl;
    if (model.IsByte(id)) type = kByte;
    pieces.push_back({model.IdToPiece(id), model.GetScore(id), type});
  }
  return pieces;
}

TEST(GgufTokenizer, Llama2GivesThePublishedTokens) {
  const fs::path published = fs::path(SKIFF_SHARED_DIR) / "data/tokenizers/llama-2-7b";
  const std::vector<Piece> pieces = pieces_of(published / "tokenizer.model");
  if (pieces.empty()) GTEST_SKIP() << published << " is not there";
  const TempFolder folder;
  const auto met = load(folder, metadata_of(pieces));
  const auto want = tokenizer_of(read_json_file((published / "tokenizer.json").string()));
  EXPECT_EQ(ids_of(*met, "<s>[INST]").at(1), 518);
  for (const char* text : {"<s>[INST] Hi! [/INST]", "<s>[INST] Hi! [/INST] Hello </s><s>[INST] ab",
                           "</s>\n\nword<unk>word", "no special token"})
    EXPECT_EQ(ids_of(*met, text), ids_of(*want, text)) << text;
}

TEST(GgufTokenizer, WrongKindsAreRefusedByKey) {
  const auto with = [](Json metadata, const char* key, const Json& value) {
    metadata[std::string("tokenizer.ggml.") + key] = value;
    return refusal(metadata);
  };
  const Json pieces = metadata_of(tiny_pieces()),
             bytes = metadata_of(tiny_tokenizer_json(), "qwen2");
  const auto texts = Json(std::vector<std::string>(264, "x"));
  Json types = pieces["tokenizer.ggml.token_type"];
  types[5] = 7;
  EXPECT_THAT(with(pieces, "token_type", types),
              AllOf(HasSubstr("model.gguf"), HasSubstr("token_type\" holds 7 for token 5")));
  EXPECT_THAT(with(pieces, "token_type", std::vector<double>(264, 1e30)),
              HasSubstr("token_type\" holds"));
  EXPECT_THAT(with(pieces, "token_type", texts), HasSubstr("token_type\" holds \"x\" for token 0"));
  EXPECT_THAT(with(pieces, "scores", texts), HasSubstr("scores\" holds"));
  EXPECT_THAT(with(pieces, "bos_token_id", "one"), HasSubstr("bos_token_id\" is"));
  EXPECT_THAT(with(pieces, "eos_token_id", 1e30), HasSubstr("eos_token_id\" is"));
  EXPECT_THAT(with(pieces, "eos_token_id", 264u), HasSubstr("eos_token_id\" is 264"));
  EXPECT_THAT(with(bytes, "merges", std::vector<int>{1, 2}), HasSubstr("merges\" must be"));
  EXPECT_THAT(with(bytes, "merges", "a b"), HasSubstr("merges\" must be"));
}

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
  EXPECT_TRUE(adds_bos(metadata_of(tiny_tokenizer_json(), "tekken")));
}

// Where words and numbers end decides what may be merged.
TEST(GgufTokenizer, SplitsWordsAndNumbersByTheNameOfItsSplitting) {
  Json file = tiny_tokenizer_json();
  for (const char* merge : {"h E", "1 2"}) {
    Json& vocab = file["model"]["vocab"];
    vocab[std::string{merge[0], merge[2]}] = 262 + (merge[0] == '1');
    file["model"]["merges"].push_back(merge);
  }
  struct Case {
    const char* pre;
    size_t word, number;  // tokens of each
  };
  for (const Case& c : {Case{"gpt-2", 1, 1}, Case{"llama-bpe", 1, 1}, Case{"qwen2", 1, 2},
                        Case{"smollm", 1, 2}, Case{"tekken", 2, 2}}) {
    const TempFolder folder;
    const auto tokenizer = load(folder, metadata_of(file, c.pre));
    EXPECT_EQ(ids_of(*tokenizer, "hE").size(), c.word) << c.pre;
    EXPECT_EQ(ids_of(*tokenizer, "12").size(), c.number) << c.pre;
    EXPECT_EQ(ids_of(*tokenizer, "the").size(), 2u) << c.pre;  // t, he
  }
}

TEST(GgufTokenizerConfig, UnknownSplittingsAreRefusedByName) {
  EXPECT_THAT(refusal(metadata_of(tiny_tokenizer_json(), "deepseek-llm")),
              AllOf(HasSubstr("deepseek-llm"), HasSubstr("--tokenizer")));
}

TEST(GgufTokenizerConfig, ASplittingThatIsNotNamedIsRefused) {
  Json metadata = metadata_of(tiny_tokenizer_json(), "gpt-2");
  metadata.erase("tokenizer.ggml.pre");
  EXPECT_THAT(refusal(metadata),
              AllOf(HasSubstr("\"tokenizer.ggml.pre\" is missing"), HasSubstr("--tokenizer")));
}

TEST(GgufTokenizerConfig, ChatTemplatesHaveNames) {
  Json metadata = metadata_of(tiny_pieces());
  metadata["tokenizer.chat_templates"] = {"tool_use"};
  metadata["tokenizer.chat_template"] = "plain";
  metadata["tokenizer.chat_template.tool_use"] = "with tools";
  const TempFolder folder;
  load(folder, metadata);
  Conversation conversation{.messages = OrderedJson::array({{{"role", "user"}, {"content", "a"}}})};
  const auto made = load_chat_template(folder.path() + "/model.gguf");
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(*(*made)->render(conversation), "plain");
  conversation.tools = OrderedJson::array({{{"type", "function"}}});
  EXPECT_EQ(*(*made)->render(conversation), "with tools");
}

TEST(GgufTokenizerConfig, WrongChatTemplatesAreNamedAfterTheFile) {
  Json metadata = metadata_of(tiny_pieces());
  metadata["tokenizer.chat_template"] = "{% if %}";
  const TempFolder folder;
  load(folder, metadata);
  const std::string path = folder.path() + "/model.gguf";
  for (const std::string& dir : {path, folder.path()}) {
    const auto made = load_chat_template(dir);
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().what,
                AllOf(HasSubstr(path), ::testing::Not(HasSubstr("tokenizer_config.json"))));
  }
  metadata["tokenizer.chat_template"] = 7;
  EXPECT_THAT(refusal(metadata), HasSubstr("\"tokenizer.chat_template\" must be a text"));
}

}  // namespace
}  // namespace skiff::text
