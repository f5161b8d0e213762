#include "text/tokenizer.h"

#include <filesystem>
#include <fstream>

#include "base/load_error.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_json.h"

namespace skiff {
namespace {

constexpr uintmax_t kMaxFile = 64u << 20;

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail_load("{}: {}", path.string(), error.message());
  if (size > kMaxFile)
    fail_load("{}: {} bytes, larger than the limit of {}", path.string(), size, kMaxFile);
  std::ifstream in(path, std::ios::binary);
  std::string bytes(size, '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size)))
    fail_load("{}: cannot be read", path.string());
  return bytes;
}

Result<std::unique_ptr<Tokenizer>> load(const std::filesystem::path& dir) {
  const auto there = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(dir / name, ignored);
  };
  const TokenizerConfig config = read_tokenizer_config(dir.string());
  const auto json = dir / "tokenizer.json", model = dir / "tokenizer.model";
  if (there("tokenizer.json")) return parse_tokenizer_json(read_file(json), config, json.string());
  if (there("tokenizer.model"))
    return parse_sentencepiece(read_file(model), config, model.string());
  if (there("vocab.json") && there("merges.txt"))
    return make_json_tokenizer(tokenizer_json_of_vocab_and_merges(dir.string(), config), config,
                               (dir / "vocab.json").string());
  return Error{Code::kNotFound,
               fmt::format("{}: no tokenizer.json, tokenizer.model, or vocab.json with merges.txt",
                           dir.string())};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& model_dir) {
  try {
    return load(model_dir);
  } catch (const LoadError& e) {
    return Error{Code::kInvalid, e.what()};
  }
}

}  // namespace skiff
