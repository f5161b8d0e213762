#include <filesystem>
#include <sstream>
#include <string>

#include "base/regular_file.h"
#include "text/tokenizer_json.h"

namespace skiff::text {
namespace {

constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr size_t kMaxMerges = 64u << 20;  // bytes

// The file has one "left right" per line, below an optional line "#version: ...".
Json read_merges(const std::string& path) {
  std::istringstream in(read_regular_file(path, kMaxMerges));
  Json merges = Json::array();
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (merges.empty() && line.starts_with("#version"))) continue;
    merges.push_back(line);
  }
  return merges;
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}

Json qwen2_words() {
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwen2Words}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

}  // namespace

Json tokenizer_json_of_vocab_and_merges(const std::string& model_dir,
                                        const TokenizerConfig& config) {
  const std::filesystem::path dir = model_dir;
  const std::string& kind = config.tokenizer_class;
  const bool qwen2 = kind.starts_with("Qwen2Tokenizer");
  if (!qwen2 && !kind.empty() && !kind.starts_with("GPT2Tokenizer"))
    fail_load(
        "{}: tokenizer_class {} with vocab.json and merges.txt is not supported; a "
        "tokenizer.json says how its texts are split",
        model_dir, kind);
  Json file = {{"normalizer", nullptr},
               {"pre_tokenizer", qwen2 ? qwen2_words() : byte_level(true)},
               {"decoder", byte_level(false)}};
  if (qwen2) file["normalizer"] = {{"type", "NFC"}};
  file["model"] = {{"type", "BPE"},
                   {"vocab", read_json_file((dir / "vocab.json").string())},
                   {"merges", read_merges((dir / "merges.txt").string())}};
  const char* end_of_text = "<|endoftext|>";  // GPT-2's only special token, which no file names
  const auto& vocab = file["model"]["vocab"];
  if (!qwen2 && vocab.is_object() && vocab.contains(end_of_text))
    file["added_tokens"] =
        Json::array({{{"content", end_of_text}, {"id", vocab[end_of_text]}, {"special", true}}});
  return file;
}

}  // namespace skiff::text
