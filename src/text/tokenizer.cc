#include "text/tokenizer.h"

#include <filesystem>

#include "base/load_error.h"
#include "base/regular_file.h"
#include "gguf/gguf_files.h"
#include "text/gguf_tokenizer.h"
#include "text/rank_file.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken_tokenizer.h"
#include "text/tokenizer_json.h"

namespace skiff::text {
namespace {

constexpr size_t kMaxFile = 64u << 20;  // bytes

namespace fs = std::filesystem;

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns the only file of the folder whose name ends in .tiktoken; empty if there is none.
fs::path rank_file_in(const fs::path& dir) {
  fs::path found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".tiktoken") continue;
    if (!found.empty())
      fail_load("{}: several files *.tiktoken; name the one to use", dir.string());
    found = it->path();
  }
  return found;
}

// The bytes of a file decide its format: JSON, lines of base64, or a protocol buffer.
Result<std::unique_ptr<Tokenizer>> load_file(const fs::path& path, const TokenizerConfig& config) {
  const std::string bytes = read_regular_file(path.string(), kMaxFile), where = path.string();
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (path.extension() == ".json" || (first != bytes.npos && bytes[first] == '{'))
    return parse_tokenizer_json(bytes, config, where);
  if (is_rank_file(bytes)) return parse_tiktoken(bytes, config, where);
  return parse_sentencepiece(bytes, config, where);
}

Result<std::unique_ptr<Tokenizer>> load(const fs::path& path) {
  std::error_code ignored;
  if (!there(path / "tokenizer.json"))
    if (const std::string gguf = gguf_file_of(path.string()); !gguf.empty())
      return load_gguf_tokenizer(gguf);
  const bool one_file = fs::is_regular_file(path, ignored);
  const fs::path dir = one_file ? path.parent_path() : path;
  const TokenizerConfig config = read_tokenizer_config(dir.string());
  if (one_file) return load_file(path, config);
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (there(dir / name)) return load_file(dir / name, config);
  const fs::path ranks = rank_file_in(dir);
  if (!ranks.empty()) return load_file(ranks, config);
  if (there(dir / "vocab.json") && there(dir / "merges.txt"))
    return make_json_tokenizer(tokenizer_json_of_vocab_and_merges(dir.string(), config), config,
                               (dir / "vocab.json").string());
  return Error{Code::kNotFound,
               fmt::format("{}: no tokenizer.json, tokenizer.model, *.tiktoken, or vocab.json with "
                           "merges.txt",
                           dir.string())};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path) {
  try {
    return load(path);
  } catch (const LoadError& e) {
    return Error{Code::kInvalid, e.what()};
  }
}

}  // namespace skiff::text
