#include "text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "text/jinja/template.h"

namespace skiff {
namespace {

namespace fs = std::filesystem;
using jinja::Clock;
using jinja::Template;

constexpr size_t kMaxFile = 1 << 20;

Error invalid(std::string what) { return {Code::kInvalid, std::move(what), "chat_template"}; }

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(Template main, std::optional<Template> with_tools, OrderedJson special,
                    Clock clock)
      : main_(std::move(main)),
        with_tools_(std::move(with_tools)),
        special_(std::move(special)),
        clock_(std::move(clock)) {}

  // kwargs win over special tokens, as they do in Hugging Face's apply_chat_template.
  Result<std::string> render(const Conversation& conversation) const override {
    const bool tools = !conversation.tools.is_null() && !conversation.tools.empty();
    OrderedJson variables = special_;
    variables["messages"] = conversation.messages;
    variables["tools"] = tools ? conversation.tools : OrderedJson();
    variables["documents"] = nullptr;
    variables["add_generation_prompt"] = conversation.add_generation_prompt;
    if (conversation.kwargs.is_object())
      for (const auto& [name, value] : conversation.kwargs.items()) variables[name] = value;
    const Template& chosen = tools && with_tools_ ? *with_tools_ : main_;
    auto text = chosen.render(variables, clock_);
    if (text) return text;
    return Error{text.error().code, "chat template, " + text.error().what, "messages"};
  }

 private:
  Template main_;
  std::optional<Template> with_tools_;
  OrderedJson special_;
  Clock clock_;
};

struct Sources {
  std::string main, with_tools;  // empty: none
  std::string where;             // for messages
};

Result<std::unique_ptr<ChatTemplate>> build(const Sources& sources, OrderedJson special,
                                            Clock clock) {
  auto main = Template::parse(sources.main);
  if (!main) return invalid(sources.where + ": " + main.error().what);
  std::optional<Template> with_tools;
  if (!sources.with_tools.empty()) {
    auto parsed = Template::parse(sources.with_tools);
    if (!parsed) return invalid(sources.where + " (tool_use): " + parsed.error().what);
    with_tools = std::move(*parsed);
  }
  if (!clock) clock = [] { return std::time(nullptr); };
  return std::unique_ptr<ChatTemplate>(std::make_unique<JinjaChatTemplate>(
      std::move(*main), std::move(with_tools), std::move(special), std::move(clock)));
}

Result<std::string> read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{Code::kNotFound, path.string() + ": cannot be read", "chat_template"};
  std::string text(kMaxFile + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxFile)
    return invalid(fmt::format("{}: a template of more than {} bytes", path.string(), kMaxFile));
  return text;
}

// A text, or a list of {"name", "template"}.
Sources from_json(const Json& value, std::string where) {
  Sources out{"", "", std::move(where)};
  if (value.is_string()) out.main = value.get<std::string>();
  if (!value.is_array()) return out;
  for (const Json& entry : value) {
    if (!entry.is_object()) continue;
    const Fields fields(entry, out.where);
    const auto name = fields.get<std::string>("name", ""),
               text = fields.get<std::string>("template", "");
    if (name == "default") out.main = text;
    if (name == "tool_use") out.with_tools = text;
  }
  if (out.main.empty()) out.main = out.with_tools;
  return out;
}

// bos_token and its like: a text, or an object whose "content" is the text.
OrderedJson special_tokens(const Json& config) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : config.items()) {
    if (key == "additional_special_tokens" && value.is_array()) out[key] = value;
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) out[key] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      out[key] = value["content"];
  }
  return out;
}

bool is_file(const fs::path& path) {
  std::error_code unused;
  return fs::is_regular_file(path, unused);
}

Result<Sources> overriding(const std::string& text) {
  const bool is_template = text.find("{%") != text.npos || text.find("{{") != text.npos;
  if (!is_template && is_file(text)) {
    auto read = read_text(text);
    if (!read) return read.error();
    return Sources{std::move(*read), "", text};
  }
  if (is_template) return Sources{text, "", "the given chat template"};
  return Error{Code::kNotFound,
               "chat template \"" + text.substr(0, 200) + "\": neither a file nor a template",
               "chat_template"};
}

Result<Sources> of_folder(const fs::path& dir, const Json& config) {
  if (is_file(dir / "chat_template.jinja")) {
    auto read = read_text(dir / "chat_template.jinja");
    if (!read) return read.error();
    return Sources{std::move(*read), "", (dir / "chat_template.jinja").string()};
  }
  Sources found;
  if (config.contains("chat_template"))
    found = from_json(config["chat_template"], (dir / "tokenizer_config.json").string());
  if (found.main.empty() && is_file(dir / "chat_template.json")) {
    const Json file = read_json_file((dir / "chat_template.json").string());
    if (file.is_object() && file.contains("chat_template"))
      found = from_json(file["chat_template"], (dir / "chat_template.json").string());
  }
  if (!found.main.empty()) return found;
  return Error{Code::kNotFound,
               dir.string() + ": the model has no chat template; give one with --chat-template",
               "chat_template"};
}

}  // namespace

Result<std::unique_ptr<ChatTemplate>> load_chat_template(const std::string& model_dir,
                                                         const std::string& override_text) try {
  const fs::path config_path = fs::path(model_dir) / "tokenizer_config.json";
  Json config = is_file(config_path) ? read_json_file(config_path.string()) : Json::object();
  if (!config.is_object()) return invalid(config_path.string() + ": expected a JSON object");
  const auto sources =
      override_text.empty() ? of_folder(model_dir, config) : overriding(override_text);
  if (!sources) return sources.error();
  return build(*sources, special_tokens(config), {});
} catch (const LoadError& e) {
  return invalid(e.what());
}

Result<std::unique_ptr<ChatTemplate>> make_chat_template(std::string text, Json special,
                                                         std::function<std::time_t()> clock) {
  return build({std::move(text), "", "chat template"}, OrderedJson(special), std::move(clock));
}

}  // namespace skiff
