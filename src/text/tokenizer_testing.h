// text/tokenizer_testing.h -- for tests: a tokenizer small enough to work out by hand, and
// temporary model folders.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace skiff::text {

// Byte-level BPE: ids 0..255 are the bytes; then " t" 256, "he" 257, " the" 258, "in" 259,
// "ing" 260, and the special token <end> 261.
inline Json tiny_tokenizer_json() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[alphabet_from_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"i", "n"}, {"in", "g"}};
  Json list = Json::array();
  for (const auto& [left, right] : merges) {
    vocab[left + right] = 256 + static_cast<int>(list.size());
    list.push_back(fmt::format("{} {}", left, right));
  }
  Json end = {{"content", "<end>"}, {"id", 261}, {"special", true}};
  Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", Json::array({end})},
          {"pre_tokenizer", level},
          {"decoder", level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

// Metaspace BPE with byte fallback, as Llama 2: <unk> 0, <s> 1, </s> 2, bytes 3..258, then
// "▁" 259, "a" 260, "b" 261, "▁a" 262, "ab" 263, "▁ab" 264.
inline Json tiny_metaspace_json() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1},  {"</s>", 2}, {"▁", 259},  {"a", 260},
                {"b", 261},   {"▁a", 262}, {"ab", 263}, {"▁ab", 264}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  const auto special = [](const char* content, int id) {
    return Json{{"content", content}, {"id", id}, {"special", true}, {"normalized", false}};
  };
  const auto replace = [](const char* from, const char* to) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  const auto step = [](const char* type) { return Json{{"type", type}}; };
  const Json text = {{"Sequence", {{"id", "A"}}}}, bos = {{"SpecialToken", {{"id", "<s>"}}}};
  return {{"added_tokens", {special("<unk>", 0), special("<s>", 1), special("</s>", 2)}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers", {Json{{"type", "Prepend"}, {"prepend", "▁"}}, replace(" ", "▁")}}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", Json::array({bos, text})},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {replace("▁", " "), step("ByteFallback"), step("Fuse"),
              Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"vocab", vocab},
            {"merges", Json::array({Json::array({"▁", "a"}), Json::array({"a", "b"}),
                                    Json::array({"▁a", "b"})})}}}};
}

inline std::unique_ptr<Tokenizer> tokenizer_of(const Json& file,
                                               const TokenizerConfig& config = {}) {
  auto made = parse_tokenizer_json(file.dump(), config, "tokenizer.json");
  if (made) return std::move(*made);
  ADD_FAILURE() << made.error().what;
  return nullptr;
}

inline std::vector<int32_t> encode_plainly(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

// A folder that is removed at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "skiff-text-XXXXXX").string();
    if (!mkdtemp(name.data())) ADD_FAILURE() << "cannot make " << name;
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace skiff::text
