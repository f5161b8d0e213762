#include "text/chat/chat_template_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/regular_file.h"
#include "gguf/gguf_files.h"
#include "text/gguf_tokenizer.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = 1 << 20;
constexpr size_t kMaxTemplates = 100;

bool is_file(const fs::path& path) {
  std::error_code unused;
  return fs::is_regular_file(path, unused);
}

std::string read_text(const fs::path& path) { return read_regular_file(path.string(), kMaxFile); }

// The value is a text, or a list of {"name", "template"}.
std::vector<NamedTemplate> from_json(const Json& value, const std::string& where) {
  std::vector<NamedTemplate> out;
  if (const auto* text = value.get_ptr<const std::string*>(); text && !text->empty())
    out.push_back({"default", *text, where});
  if (!value.is_array()) return out;
  for (const Json& entry : value) {
    const Fields fields(entry, where + ": chat_template");
    auto name = fields.need<std::string>("name");
    std::string place = fmt::format("{} ({})", where, name);
    out.push_back({std::move(name), fields.need<std::string>("template"), std::move(place)});
  }
  if (out.size() > kMaxTemplates) fail_load("{}: {} chat templates", where, out.size());
  return out;
}

std::vector<NamedTemplate> from_jinja_files(const fs::path& dir) {
  std::vector<NamedTemplate> out;
  const fs::path main = dir / "chat_template.jinja";
  if (is_file(main)) out.push_back({"default", read_text(main), main.string()});
  std::vector<fs::path> more;
  std::error_code failed;
  for (fs::directory_iterator it(dir / "additional_chat_templates", failed), end;
       !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".jinja" && is_file(it->path())) more.push_back(it->path());
  if (more.size() > kMaxTemplates) fail_load("{}: {} chat templates", dir.string(), more.size());
  std::sort(more.begin(), more.end());
  for (const fs::path& path : more)
    out.push_back({path.stem().string(), read_text(path), path.string()});
  return out;
}

// Reads the roles of the object whose values are texts, or objects whose "content" is the text.
void add_special_tokens(OrderedJson& out, const Json& object) {
  for (const auto& [key, value] : object.items()) {
    if (out.contains(key)) continue;
    if (key == "additional_special_tokens" && value.is_array()) out[key] = value;
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) out[key] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      out[key] = value["content"];
  }
}

// Where the templates of read_template_config() come from.
std::string config_name(const fs::path& dir) {
  const std::string gguf = gguf_file_of(dir.string());
  return gguf.empty() ? (dir / "tokenizer_config.json").string() : gguf;
}

}  // namespace

Json read_template_config(const fs::path& dir) {
  if (auto config = tokenizer_config_of_gguf(dir.string())) return *std::move(config);
  const fs::path path = dir / "tokenizer_config.json";
  Json config = is_file(path) ? read_json_file(path.string()) : Json::object();
  if (!config.is_object()) fail_load("{}: expected a JSON object", path.string());
  return config;
}

std::vector<NamedTemplate> read_templates(const fs::path& dir, const Json& config) {
  std::vector<NamedTemplate> found = from_jinja_files(dir);
  if (found.empty() && config.contains("chat_template"))
    found = from_json(config["chat_template"], config_name(dir));
  const fs::path json = dir / "chat_template.json";
  if (!found.empty() || !is_file(json)) return found;
  const Json file = read_json_file(json.string());
  if (!file.is_object() || !file.contains("chat_template")) return {};
  return from_json(file["chat_template"], json.string());
}

Result<NamedTemplate> read_override(const std::string& text) try {
  const bool is_template = text.find("{%") != text.npos || text.find("{{") != text.npos;
  if (is_template) return NamedTemplate{"default", text, "the given chat template"};
  if (is_file(text)) return NamedTemplate{"default", read_text(text), text};
  return Error{Code::kNotFound,
               fmt::format("chat template \"{}\": neither a file, a template, nor the name of one "
                           "of the model's",
                           text.substr(0, 200)),
               "chat_template"};
} catch (const LoadError& e) {
  return Error{Code::kInvalid, e.what(), "chat_template"};
}

OrderedJson read_special_tokens(const fs::path& dir, const Json& config) {
  OrderedJson out = OrderedJson::object();
  add_special_tokens(out, config);
  const fs::path map = dir / "special_tokens_map.json";
  if (!is_file(map)) return out;
  const Json file = read_json_file(map.string());
  if (file.is_object()) add_special_tokens(out, file);
  return out;
}

}  // namespace skiff::text
