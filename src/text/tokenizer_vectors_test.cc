// The tokenizers of real models against what the reference implementations make of some three
// hundred hard strings (tests/text, written by tools/text/make_vectors.py).
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <iostream>
#include <random>
#include <sstream>

#include "text/detokenizer.h"
#include "text/tokenizer_test_util.h"

namespace skiff {
namespace {

namespace fs = std::filesystem;

const fs::path kVectors = fs::path(SKIFF_SOURCE_DIR) / "tests/text";
const fs::path kData = fs::path(SKIFF_SHARED_DIR) / "data";

std::string unzipped(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string out(64 << 20, '\0');
  const int size = file ? gzread(file, out.data(), static_cast<unsigned>(out.size())) : -1;
  if (file) gzclose(file);
  EXPECT_GT(size, 0) << path;
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

std::string contents(const fs::path& path) {
  if (path.extension() == ".gz") return unzipped(path);
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

// The files of a tokenizer as a model folder has them: all of a data folder, or the one named.
void gather(const fs::path& source, const TempFolder& folder) {
  const bool one = !fs::is_directory(source);
  for (const auto& entry : fs::directory_iterator(one ? source.parent_path() : source)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (one && path == source) {
      folder.write("tokenizer.model", contents(path));
    } else if (name == "tokenizer.json" || name == "tokenizer.json.gz") {
      if (!one) folder.write("tokenizer.json", contents(path));
    } else if (!name.starts_with("tokenizer.model") && name != "model.safetensors") {
      folder.write(name, contents(path));
    }
  }
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer, {});
  std::string out;
  for (const int32_t id : ids) out += detokenizer.push(id);
  return out + detokenizer.flush();
}

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    vectors_ =
        read_json_file((kVectors / "vectors" / (std::string(GetParam()) + ".json")).string());
    const fs::path source = kData / vectors_["source"].get<std::string>();
    if (!fs::exists(source)) GTEST_SKIP() << source << " is not there";
    gather(source, folder_);
    auto made = load_tokenizer(folder_.path());
    ASSERT_TRUE(made) << made.error().what;
    tokenizer_ = std::move(*made);
  }

  void expect_the_reference() const;
  void expect_valid_streams() const;

  Json vectors_;
  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

void Vectors::expect_the_reference() const {
  const Json strings = read_json_file((kVectors / "strings.json").string());
  const bool plain = std::string(GetParam()).ends_with(".model");  // as the library alone encodes
  ASSERT_GT(strings.size(), 300u);
  for (size_t i = 0; i < strings.size(); ++i) {
    const auto text = strings[i].get<std::string>();
    const auto expected = vectors_["ids"][i].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->encode(text, {true, !plain}), expected) << strings[i];
    const std::string decoded = tokenizer_->decode(expected, true);
    EXPECT_EQ(decoded, vectors_["decoded"].value(std::to_string(i), text));
    // A stream keeps the space that decode() takes from the front.
    const std::string stream = streamed(*tokenizer_, expected);
    EXPECT_TRUE(stream == decoded || stream == " " + decoded) << strings[i] << Json(stream);
  }
}

// Random tokens stream as valid text.
void Vectors::expect_valid_streams() const {
  std::mt19937 random(29);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int32_t> ids(1 + random() % 30);
    std::string bytes;
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % static_cast<unsigned>(tokenizer_->vocab_size()));
      if (!tokenizer_->is_special(id)) bytes += tokenizer_->piece(id);
    }
    EXPECT_EQ(streamed(*tokenizer_, ids), utf8_sanitized(bytes));
    EXPECT_TRUE(is_valid_utf8(tokenizer_->decode(ids, false)));
  }
}

TEST_P(Vectors, EqualTheReference) {
  expect_the_reference();
  expect_valid_streams();
}

// Run with --gtest_also_run_disabled_tests --gtest_filter=*Throughput*.
TEST_P(Vectors, DISABLED_Throughput) {
  std::string text, sources = contents(fs::path(SKIFF_SOURCE_DIR) / "src/text/tokenizer.cc") +
                              contents(kVectors / "strings.json");
  while (text.size() < 1'000'000) text += sources;
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const size_t tokens = tokenizer_->encode(text, {}).size();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << GetParam() << ": " << tokens << " tokens, "
              << static_cast<double>(text.size()) / took.count() / 1e6 << " MB/s\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Vectors,
                         testing::Values("qwen2.5", "qwen3", "llama-3", "llama-2", "mixtral",
                                         "ernie-4.5", "ernie-4.5-thinking", "deepseek-r1", "gpt2",
                                         "stories260K", "llama-2.model", "ernie-4.5.model",
                                         "baichuan2.model", "stories260K.model"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(static_cast<uint8_t>(c)) ? c : '_';
                           return name;
                         });

// The two forms of one vocabulary are one tokenizer.
TEST(RealTokenizers, SpecialTextAcrossFormats) {
  const fs::path source = kData / "tokenizers/llama-2-7b";
  if (!fs::exists(source)) GTEST_SKIP() << source << " is not there";
  const TempFolder json, model;
  gather(source, json);
  model.write("tokenizer.model", contents(source / "tokenizer.model"));
  const auto a = load_tokenizer(json.path()), b = load_tokenizer(model.path());
  ASSERT_TRUE(a && b);
  for (const char* text : {"<s>[INST] Hi [/INST] yes </s><s>[INST] x [/INST]", "a</s>b", "<unk>"})
    EXPECT_EQ((*a)->encode(text, {}), (*b)->encode(text, {})) << text;
}

}  // namespace
}  // namespace skiff
