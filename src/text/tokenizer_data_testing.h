// text/tokenizer_data_testing.h -- for tests: the tokenizer files of real models, which lie beside
// the project, and the results that tests/text expects from them.
#pragma once
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer_testing.h"

namespace skiff::text {

inline const std::filesystem::path kVectors =
    std::filesystem::path(SKIFF_SOURCE_DIR) / "tests/text";
inline const std::filesystem::path kData = std::filesystem::path(SKIFF_SHARED_DIR) / "data";

inline std::string unzipped(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string out(64 << 20, '\0');
  const int size = file ? gzread(file, out.data(), static_cast<unsigned>(out.size())) : -1;
  if (file) gzclose(file);
  EXPECT_GT(size, 0) << path;
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

// Reads a file, or the file of the same name with ".gz" appended, decompressed.
inline std::string contents(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return unzipped(path.string() + ".gz");
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

inline bool there(const std::filesystem::path& path) {
  return std::filesystem::exists(path) || std::filesystem::exists(path.string() + ".gz");
}

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// The vocabulary of a byte-level tokenizer.json as a tiktoken file.
inline std::string rank_file_of(const std::string& tokenizer_json) {
  const Json file = Json::parse(tokenizer_json);
  std::map<int, std::string> by_rank;
  for (const auto& [written, id] : file["model"]["vocab"].items())
    by_rank[id.get<int>()] = bytes_from_alphabet(written).value_or("");
  std::string out;
  for (const auto& [rank, token] : by_rank) out += fmt::format("{} {}\n", base64(token), rank);
  return out;
}

// Fills `folder` with the "files" that a vectors file lists; returns false if the data is not
// there.
inline bool gather(const Json& files, const TempFolder& folder) {
  constexpr std::string_view kRanks = "ranks:";
  for (const auto& [name, value] : files.items()) {
    auto source = value.get<std::string>();
    const bool ranks = source.starts_with(kRanks);
    if (ranks) source.erase(0, kRanks.size());
    if (!there(kData / source)) return false;
    const std::string bytes = contents(kData / source);
    folder.write(name, ranks ? rank_file_of(bytes) : bytes);
  }
  return true;
}

// Loads tests/text/vectors/NAME.json and its tokenizer, or skips the test with a message.
class RealTokenizer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = kVectors / "vectors" / (std::string(GetParam()) + ".json");
    vectors_ = read_json_file(path.string());
    if (!gather(vectors_["files"], folder_))
      GTEST_SKIP() << "the files of " << GetParam() << " are not in " << kData;
    auto made = load_tokenizer(folder_.path());
    ASSERT_TRUE(made) << made.error().what;
    tokenizer_ = std::move(*made);
  }

  Json vectors_;
  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

inline const auto kRealTokenizers =
    testing::Values("qwen2.5", "qwen3", "llama-3", "llama-2", "mixtral", "ernie-4.5",
                    "ernie-4.5-thinking", "deepseek-r1", "gpt2", "stories260K", "llama-3.tiktoken",
                    "qwen.tiktoken", "chatglm3.model", "baichuan2.model", "llama-2.model",
                    "llama-2-legacy.model", "ernie-4.5.model", "stories260K.model");

inline std::string test_name(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<uint8_t>(c)) ? c : '_';
  return name;
}

}  // namespace skiff::text
