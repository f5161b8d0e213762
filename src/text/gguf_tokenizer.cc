#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

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

// The metadata of one file. All elements of an array are of one kind (gguf.h).
class Metadata {
 public:
  Metadata(const GgufHeader& header, const std::string& where) : fields_(header.metadata, where) {
    const auto tokens = find("tokens");
    if (tokens == nullptr || !tokens->is_array() || tokens->empty() || !tokens->front().is_string())
      fail_load("{}: \"{}tokens\" is missing: the file has no tokenizer", where, kPrefix);
  }
  const Json* find(std::string_view key) const {
    const Json& all = fields_.json();
    const auto found = all.find(std::string(kPrefix) + std::string(key));
    return found == all.end() ? nullptr : &*found;
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
    fail_load("{}: \"{}{}\" {}", fields_.where(), kPrefix, key, why);
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
      refuse(key, fmt::format("must have {} elements, one for each token", size()));
    return *array;
  }
  int type(size_t token) const {
    constexpr std::string_view kKey = "token_type";
    if (!find(kKey)) return kNormal;
    const Json& value = of_tokens(kKey)[token];
    const int64_t type = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (type < 0 || type > kByte)
      refuse(kKey, fmt::format("holds {} for token {}; types are integers from 0 to {}",
                               shown(value), token, int{kByte}));
    return static_cast<int>(type);
  }
  float score(size_t token) const {
    constexpr std::string_view kKey = "scores";
    const Json& value = of_tokens(kKey)[token];
    const double score = value.is_number() ? value.get<double>() : INFINITY;
    if (!(std::abs(score) <= std::numeric_limits<float>::max()))
      refuse(kKey, fmt::format("holds {} for token {}, no float", shown(value), token));
    return static_cast<float>(score);
  }
  // An array of texts.
  const Json& texts(std::string_view key) const {
    const Json* array = find(key);
    if (!array) refuse(key, "is missing");
    if (!array->is_array() || (!array->empty() && !array->front().is_string()))
      refuse(key, "must be an array of texts");
    return *array;
  }
  // The token with a role; empty where there is no key, or a negative number.
  std::string special(std::string_view role) const {
    const std::string key = fmt::format("{}_token_id", role);
    const Json* id = find(key);
    if (!id) return {};
    if (!id->is_number_integer()) refuse(key, fmt::format("is {}, no token", shown(*id)));
    if (!id->is_number_unsigned() && id->get<int64_t>() < 0) return {};
    if (id->get<uint64_t>() >= size())
      refuse(key, fmt::format("is {}, there are {} tokens", shown(*id), size()));
    return tokens()[id->get<size_t>()].get<std::string>();
  }

 private:
  static std::string shown(const Json& value) { return escaped(value.dump(), 40); }

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
  bool has_bytes = false;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const int type = metadata.type(i);
    has_bytes = has_bytes || type == kByte;
    model.text(1, Proto()
                      .text(1, metadata.tokens()[i].get<std::string>())
                      .real(2, metadata.score(i))
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
// after the other. The names of Llama 3's and Mistral's imply more: a word that is a token is not
// merged, and texts begin with BOS unless the file says otherwise.
struct Splitting {
  std::string_view name;
  std::array<const char*, 3> patterns;
  bool nfc = false, like_llama3 = false;
};
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words begin anew at a capital letter behind a small one.
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Splitting kSplittings[] = {
    {"gpt-2", {kGpt2}},
    {"llama-bpe", {kLlama3}, false, true},
    {"llama3", {kLlama3}, false, true},
    {"llama-v3", {kLlama3}, false, true},
    {"qwen2", {kQwen2}, true},
    {"deepseek-r1-qwen", {kQwen2}},
    {"smollm", {R"(\p{N})", kGpt2}},
    {"tekken", {kTekken}, false, true},
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

// Files without a name are older than the key, and were split in whatever way their model asks for.
const Splitting& splitting_of(const Metadata& metadata) {
  const auto name = metadata.get<std::string>("pre", "");
  if (const Splitting* known = find_splitting(name)) return *known;
  const std::string what = metadata.find("pre") ? escaped(name, 60) + " is not supported"
                                                : "is missing, so how texts are split is not known";
  metadata.refuse("pre",
                  what + "; give the tokenizer of the safetensors checkpoint with --tokenizer");
}

Json bpe_file(const Metadata& metadata) {
  const Splitting& splitting = splitting_of(metadata);
  Json steps = Json::array();
  for (const char* pattern : splitting.patterns)
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
  Json normalizer = nullptr;
  if (splitting.nfc) normalizer = {{"type", "NFC"}};
  return {{"normalizer", normalizer},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
          {"decoder", byte_level()},
          {"added_tokens", added},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", metadata.texts("merges")},
            {"ignore_merges", splitting.like_llama3}}}};
}

// The template without a name is the default one.
Json chat_templates(const Fields& metadata) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  Json list = Json::array();
  for (const auto& [key, value] : metadata.json().items()) {
    if (!key.starts_with(kKey)) continue;
    const std::string_view rest = std::string_view(key).substr(kKey.size());
    if (!rest.empty() && rest.front() != '.') continue;
    if (!value.is_string())
      fail_load("{}: \"{}\" must be a text", metadata.where(), escaped(key, 80));
    if (!value.get_ref<const std::string&>().empty())
      list.push_back({{"name", rest.empty() ? "default" : rest.substr(1)}, {"template", value}});
  }
  return list;
}

// Without "legacy" false, every stretch of text between special tokens begins with a space, where
// the file asks for one at all: so does llama.cpp.
Json config_of(const Metadata& metadata) {
  const bool llama = metadata.get<std::string>("model", "") == "llama";
  const Splitting* splitting = find_splitting(metadata.get<std::string>("pre", ""));
  const bool bos = llama || (splitting && splitting->like_llama3);
  Json config = {{"bos_token", metadata.special("bos")},
                 {"eos_token", metadata.special("eos")},
                 {"add_bos_token", metadata.get("add_bos_token", bos)},
                 {"add_eos_token", metadata.get("add_eos_token", false)}};
  if (llama) config["tokenizer_class"] = "LlamaTokenizer";
  if (Json templates = chat_templates(metadata.fields()); !templates.empty())
    config["chat_template"] = std::move(templates);
  return config;
}

}  // namespace

std::optional<Json> tokenizer_config_of_gguf(const std::string& path) {
  const std::string file = gguf_file_of(path);
  if (file.empty()) return std::nullopt;
  const GgufModel model = read_gguf(file);
  return config_of(Metadata(model.header, file));
}

Result<std::unique_ptr<Tokenizer>> make_gguf_tokenizer(const GgufHeader& header,
                                                       const std::string& where) {
  const Metadata metadata(header, where);
  const TokenizerConfig config = make_tokenizer_config(config_of(metadata), where);
  const auto model = metadata.get<std::string>("model", "");
  if (model == "llama") return parse_sentencepiece(sentencepiece_model(metadata), config, where);
  if (model == "gpt2") return make_json_tokenizer(bpe_file(metadata), config, where);
  metadata.refuse("model", escaped(model, 60) + " is not supported, only llama and gpt2 are");
}

Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const std::string& path) {
  return make_gguf_tokenizer(read_gguf(path).header, path);
}

}  // namespace skiff::text
