#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "text/gguf_tokenizer.h"

namespace skiff::text {
namespace {

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                  "cls_token", "sep_token", "mask_token"};

// A token is a string or an object with "content".
std::string token_text(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return {};
  return Fields(value, where).need<std::string>("content");
}

int32_t token_id(const std::string& text, const std::string& where) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id < 0)
    fail_load("{}: \"{}\" is not a token id", where, text.substr(0, 40));
  return id;
}

class Reader {
 public:
  TokenizerConfig config;

  void read_config(const Fields& fields) {
    config.tokenizer_class = fields.get<std::string>("tokenizer_class", "");
    config.name_or_path = fields.get<std::string>("name_or_path", "");
    if (fields.has("add_bos_token")) config.add_bos = fields.need<bool>("add_bos_token");
    if (fields.has("add_eos_token")) config.add_eos = fields.need<bool>("add_eos_token");
    config.legacy = fields.get("legacy", true);
    const Fields decoder = fields.child("added_tokens_decoder");
    for (const auto& [id, entry] : decoder.json().items())
      config.added.push_back(
          read_added_token(Fields(entry, decoder.where()), token_id(id, decoder.where())));
    read_roles(fields);
  }

  // tokenizer_config.json comes first and wins over special_tokens_map.json.
  void read_roles(const Fields& fields) {
    for (const char* role : kRoles) {
      const auto it = fields.json().find(role);
      if (it == fields.json().end()) continue;
      const std::string text = token_text(*it, fields.where() + ": " + role);
      if (text.empty()) continue;
      config.special.push_back(text);
      if (role == kRoles[0] && config.bos.empty()) config.bos = text;
      if (role == kRoles[1] && config.eos.empty()) config.eos = text;
    }
    const auto more = fields.json().find("additional_special_tokens");
    if (more == fields.json().end() || !more->is_array()) return;
    for (const Json& token : *more)
      config.special.push_back(token_text(token, fields.where() + ": additional_special_tokens"));
  }

  void read_added(const Fields& fields) {
    for (const auto& item : fields.json().items()) {
      AddedToken token{.content = item.key(), .id = fields.need<int32_t>(item.key())};
      if (token.id < 0) fail_load("{}: {} has the id {}", fields.where(), token.content, token.id);
      const bool known = std::any_of(config.added.begin(), config.added.end(),
                                     [&](const auto& t) { return t.content == token.content; });
      if (!known) config.added.push_back(std::move(token));
    }
  }

  void finish() {
    for (AddedToken& token : config.added)
      token.special = token.special || config.is_special(token.content);
    for (const AddedToken& token : config.added)
      if (token.special) config.special.push_back(token.content);
  }
};

}  // namespace

bool TokenizerConfig::is_special(const std::string& token) const {
  return std::find(special.begin(), special.end(), token) != special.end();
}

bool TokenizerConfig::is_llama() const {
  return tokenizer_class.starts_with("Llama") || tokenizer_class.starts_with("CodeLlama");
}

TokenizerConfig make_tokenizer_config(const Json& config, const std::string& where) {
  Reader reader;
  reader.read_config(Fields(config, where));
  reader.finish();
  return std::move(reader.config);
}

TokenizerConfig read_tokenizer_config(const std::string& model_dir) {
  Reader reader;
  const auto with = [&](const char* name, auto read) {
    const auto path = std::filesystem::path(model_dir) / name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    const Json json = read_json_file(path.string());
    read(Fields(json, path.string()));
  };
  if (const auto config = tokenizer_config_of_gguf(model_dir))
    return make_tokenizer_config(*config, model_dir);
  with("tokenizer_config.json", [&](const Fields& f) { reader.read_config(f); });
  with("special_tokens_map.json", [&](const Fields& f) { reader.read_roles(f); });
  with("added_tokens.json", [&](const Fields& f) { reader.read_added(f); });
  reader.finish();
  return std::move(reader.config);
}

}  // namespace skiff::text
