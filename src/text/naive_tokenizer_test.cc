// Compares tokenizers with the plain definition of their algorithm, on texts that reach every fast
// path: caches, parts of long words, split patterns, normal forms, and added tokens in unusual
// places.
#include "text/naive_tokenizer_testing.h"

#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <zlib.h>

#include <random>
#include <thread>

#include "text/pre_tokenizer.h"
#include "text/tokenizer_stream.h"
#include "text/tokenizer_testing.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

std::string unpacked(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // also reads files that are not compressed
  std::string out(64 << 20, '\0');
  const int size = file ? gzread(file, out.data(), static_cast<unsigned>(out.size())) : 0;
  if (file) gzclose(file);
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

// Makes texts from hard strings and from entries of the vocabulary.
class Texts {
 public:
  explicit Texts(const Json& file) {
    for (const Json& text :
         read_json_file((fs::path(SKIFF_SOURCE_DIR) / "tests/text/strings.json").string()))
      hard_.push_back(text.get<std::string>());
    const bool byte_level = file["pre_tokenizer"].dump().find("ByteLevel") != std::string::npos;
    for (const auto& [written, id] : file["model"]["vocab"].items()) {
      const auto bytes = byte_level ? bytes_from_alphabet(written) : written;
      if (bytes && random_() % 8 == 0) tokens_.push_back(*bytes);
    }
  }

  std::string next() {
    std::string text;
    for (size_t parts = 1 + random_() % 6; parts > 0; --parts) {
      if (random_() % 3 == 0) text += cut(hard_[random_() % hard_.size()]);
      if (random_() % 2) text += tokens_[random_() % tokens_.size()];
      if (random_() % 4 == 0) text += std::string(random_() % 40, " a\n0\xE4-"[random_() % 6]);
    }
    return utf8_sanitized(text);
  }

 private:
  std::string cut(const std::string& text) {
    return text.empty() ? text : text.substr(random_() % text.size(), random_() % 60);
  }
  std::mt19937 random_{41};
  std::vector<std::string> hard_, tokens_;
};

void expect_the_definition(const Json& file, int wanted) {
  const auto tokenizer = tokenizer_of(file);
  const NaiveTokenizer naive(file);
  Texts texts(file);
  int compared = 0;
  for (int trial = 0; trial < 20 * wanted && compared < wanted; ++trial) {
    const std::string text = texts.next();
    if (!naive.can_encode(text)) continue;
    ++compared;
    const Ids expected = naive.encode(text);
    ASSERT_EQ(encode_plainly(*tokenizer, text), expected) << Json(text);
    ASSERT_EQ(encode_plainly(*tokenizer, text), expected) << "again: " << Json(text);
  }
  EXPECT_EQ(compared, wanted);
}

class Naive : public testing::TestWithParam<const char*> {};

TEST_P(Naive, EqualsTheDefinition) {
  const fs::path folder = fs::path(SKIFF_SHARED_DIR) / "data/tokenizers" / GetParam();
  std::string bytes = unpacked(folder / "tokenizer.json.gz");
  if (bytes.empty()) bytes = unpacked(folder / "tokenizer.json");
  if (bytes.empty()) GTEST_SKIP() << folder << " is not there";
  const auto file = parse_json(bytes);
  ASSERT_TRUE(file);
  EXPECT_TRUE(read_pre_tokenizer((*file)["pre_tokenizer"], "t").by_pattern());
  EXPECT_TRUE(stream_tokenizer_json(bytes));
  expect_the_definition(*file, 400);
}

INSTANTIATE_TEST_SUITE_P(Models, Naive,
                         testing::Values("qwen2.5", "llama3-hf-via-bitnet", "deepseek-r1",
                                         "ernie-4.5", "llama-2-7b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(static_cast<uint8_t>(c)) ? c : '_';
                           return name;
                         });

TEST(TinyTokenizers, EqualTheDefinition) {
  Json file = tiny_tokenizer_json();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"]["use_regex"] = true;
  expect_the_definition(file, 1000);
}

// Many threads share the cache; each must get the same tokens as a single thread.
TEST(Tokenizer, ThreadsShareIt) {
  const auto tokenizer = tokenizer_of(tiny_tokenizer_json());
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  texts.reserve(300);
  expected.reserve(300);
  Texts make(tiny_tokenizer_json());
  for (int i = 0; i < 300; ++i) texts.push_back(make.next());
  const auto alone = tokenizer_of(tiny_tokenizer_json());
  for (const std::string& text : texts) expected.push_back(encode_plainly(*alone, text));
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 4 * texts.size(); ++i) {
        const size_t at = (i * (2 * t + 1) + t) % texts.size();
        EXPECT_EQ(encode_plainly(*tokenizer, texts[at]), expected[at]);
      }
    });
}

}  // namespace
}  // namespace skiff::text
