#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "gguf/gguf_files.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

namespace skiff::text {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Types of tokens, which SentencePiece numbers in the same way.
enum TokenType : int { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// The metadata of one file.
class Metadata {
 public:
  explicit Metadata(const std::string& path)
      : header_(read_gguf(path).header), fields_(header_.metadata, path) {
    const auto tokens = find("tokens");
    if (tokens == nullptr || !tokens->is_array() || tokens->empty() || !tokens->front().is_string())
      fail_load("{}: \"{}tokens\" is missing: the file has no tokenizer", path, kPrefix);
  }
  const Json* find(std::string_view key) const {
    const auto found = header_.metadata.find(std::string(kPrefix) + std::string(key));
    return found == header_.metadata.end() ? nullptr : &*found;
  }
  template <class T>
  T get(std::string_view key, T fallback) const {
    return fields_.get<T>(std::string(kPrefix) + std::string(key), fallback);
  }
  const Fields& fields() const { return fields_; }
  const Json& tokens() const { return *find("tokens"); }
  size_t size() const { return tokens().size(); }
  // An array with an element for each token.
  const Json& of_tokens(std::string_view key) const {
    const Json* array = find(key);
    if (!array || !array->is_array() || array->size() != size())
      fail_load("{}: \"{}{}\" must have {} elements, one for each token", fields_.where(), kPrefix,
                key, size());
    return *array;
  }
  int type(size_t token) const {
    return find("token_type") ? of_tokens("token_type")[token].get<int>() : int{kNormal};
  }
  std::string special(std::string_view role) const {
    const auto id = get<int64_t>(std::string(role) + "_token_id", -1);
    if (id < 0) return {};
    if (id >= static_cast<int64_t>(size()))
      fail_load("{}: \"{}{}_token_id\" is {}, there are {} tokens", fields_.where(), kPrefix, role,
                id, size());
    return tokens()[static_cast<size_t>(id)].get<std::string>();
  }

 private:
  GgufHeader header_;
  Fields fields_;
};

// A protocol buffer, written field by field.
class Proto {
 public:
  Proto& number(unsigned field, uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  Proto& text(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Proto& real(unsigned field, float value) {
    varint(field << 3 | 5);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof raw);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// The same model as a file of SentencePiece (sentencepiece_model.proto).
std::string sentencepiece_model(const Metadata& metadata) {
  Proto model;
  const Json& scores = metadata.of_tokens("scores");
  bool has_bytes = false;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const int type = metadata.type(i);
    has_bytes = has_bytes || type == kByte;
    model.text(1, Proto()
                      .text(1, metadata.tokens()[i].get<std::string>())
                      .real(2, scores[i].get<float>())
                      .number(3, static_cast<uint64_t>(type))
                      .bytes());
  }
  constexpr uint64_t kBpe = 2;
  model.text(2, Proto().number(3, kBpe).number(35, has_bytes).bytes());
  return model
      .text(3, Proto()
                   .text(1, "identity")
                   .number(3, metadata.get("add_space_prefix", true))
                   .number(4, 0)
                   .number(5, 1)
                   .bytes())
      .bytes();
}

// How texts are split before bytes are merged, by the name that llama.cpp gives it: by one pattern
// after the other. Llama 3's have more that the name implies: a word that is a token is not merged,
// and texts begin with BOS unless the file says otherwise.
struct Splitting {
  std::string_view name;
  std::array<const char*, 3> patterns;
  bool nfc = false, llama3 = false;
};
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Splitting kSplittings[] = {
    {"gpt-2", {kGpt2}},
    {"llama-bpe", {kLlama3}, false, true},
    {"llama3", {kLlama3}, false, true},
    {"llama-v3", {kLlama3}, false, true},
    {"qwen2", {kQwen2}, true},
    {"deepseek-r1-qwen", {kQwen2}},
    {"deepseek-v3", {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
};

// nullptr for a name that is not known.
const Splitting* find_splitting(const std::string& name) {
  const auto* found = std::ranges::find(kSplittings, name, &Splitting::name);
  return found == std::end(kSplittings) ? nullptr : found;
}

Json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

Json bpe_file(const Metadata& metadata) {
  const auto name = metadata.get<std::string>("pre", "gpt-2");
  const Splitting* splitting = find_splitting(name);
  if (!splitting)
    fail_load(
        "{}: \"{}pre\" {} is not supported; give the tokenizer of the safetensors checkpoint "
        "with --tokenizer",
        metadata.fields().where(), kPrefix, escaped(name, 60));
  Json steps = Json::array();
  for (const char* pattern : splitting->patterns)
    if (pattern)
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
  steps.push_back(byte_level());
  Json vocab = Json::object(), added = Json::array();
  for (size_t i = 0; i < metadata.size(); ++i) {
    const auto text = metadata.tokens()[i].get<std::string>();
    const int type = metadata.type(i);
    vocab[text] = i;
    if (type == kControl || type == kUserDefined)
      added.push_back({{"content", text}, {"id", i}, {"special", type == kControl}});
  }
  const Json* merges = metadata.find("merges");
  if (!merges) fail_load("{}: \"{}merges\" is missing", metadata.fields().where(), kPrefix);
  Json normalizer = nullptr;
  if (splitting->nfc) normalizer = {{"type", "NFC"}};
  return {{"normalizer", normalizer},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
          {"decoder", byte_level()},
          {"added_tokens", added},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", *merges},
            {"ignore_merges", splitting->llama3}}}};
}

Json config_of(const Metadata& metadata) {
  const bool llama = metadata.get<std::string>("model", "") == "llama";
  const Splitting* splitting = find_splitting(metadata.get<std::string>("pre", ""));
  const bool bos = llama || (splitting && splitting->llama3);
  Json config = {{"bos_token", metadata.special("bos")},
                 {"eos_token", metadata.special("eos")},
                 {"add_bos_token", metadata.get("add_bos_token", bos)},
                 {"add_eos_token", metadata.get("add_eos_token", false)},
                 {"legacy", false}};
  if (llama) config["tokenizer_class"] = "LlamaTokenizer";
  const Json& all = metadata.fields().json();
  if (const auto found = all.find("tokenizer.chat_template"); found != all.end())
    config["chat_template"] = *found;
  return config;
}

}  // namespace

std::optional<Json> tokenizer_config_of_gguf(const std::string& path) {
  const std::string file = gguf_file_of(path);
  if (file.empty()) return std::nullopt;
  return config_of(Metadata(file));
}

Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::string& path) {
  const Metadata metadata(path);
  const TokenizerConfig config = read_tokenizer_config(path);
  const auto model = metadata.get<std::string>("model", "");
  if (model == "llama") return parse_sentencepiece(sentencepiece_model(metadata), config, path);
  if (model == "gpt2") return make_json_tokenizer(bpe_file(metadata), config, path);
  fail_load("{}: \"{}model\" {} is not supported, only llama and gpt2 are", path, kPrefix,
            escaped(model, 60));
}

}  // namespace skiff::text
