#include "text/chat/chat_template.h"

#include <algorithm>
#include <map>
#include <optional>

#include "text/chat/builtin_templates.h"
#include "text/chat/chat_template_continue.h"
#include "text/chat/chat_template_files.h"
#include "text/chat/history_form.h"
#include "text/jinja/template.h"

namespace skiff::text {
namespace {

using jinja::Clock;
using jinja::Template;

constexpr std::string_view kReserved[] = {"messages",
                                          "tools",
                                          "add_generation_prompt",
                                          "continue_final_message",
                                          "chat_template",
                                          "conversation",
                                          "tokenize",
                                          "padding",
                                          "truncation",
                                          "max_length",
                                          "return_tensors",
                                          "return_dict",
                                          "return_assistant_tokens_mask",
                                          "tokenizer_kwargs",
                                          "bos_token",
                                          "eos_token",
                                          "unk_token",
                                          "pad_token",
                                          "sep_token",
                                          "cls_token",
                                          "mask_token",
                                          "additional_special_tokens",
                                          "raise_exception",
                                          "strftime_now",
                                          "namespace",
                                          "range",
                                          "dict",
                                          "cycler",
                                          "joiner",
                                          "lipsum",
                                          "loop",
                                          "self",
                                          "caller",
                                          "varargs",
                                          "kwargs"};
// These are fields of a Conversation, so chat_template_kwargs must not set them.
constexpr size_t kFields = 4;

Error invalid(std::string what, std::string field = "chat_template") {
  return {Code::kInvalid, std::move(what), std::move(field)};
}

Error in_template(const Error& error) {
  return {error.code, "chat template, " + error.what, "messages"};
}

// A template that does not parse causes an error only when it is used.
using Templates = std::map<std::string, Result<Template>, std::less<>>;
using Forms = std::map<std::string, HistoryForm, std::less<>>;  // the templates that parse

std::string names_of(const Templates& templates) {
  std::string out;
  for (const auto& [name, unused] : templates) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// The messages with the role system in place of developer, its newer name, which a template that
// does not know it would skip or refuse. Nothing if they can stay as they are.
std::optional<OrderedJson> with_known_roles(const OrderedJson& messages, const Template& chosen) {
  const auto is_developers = [](const OrderedJson& message) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    return message.is_object() && role != message.end() && *role == "developer";
  };
  if (std::ranges::none_of(messages, is_developers)) return std::nullopt;
  for (const char* quoted : {"'developer'", "\"developer\""})
    if (chosen.source().find(quoted) != std::string::npos) return std::nullopt;
  OrderedJson known = messages;
  for (OrderedJson& message : known)
    if (is_developers(message)) message["role"] = "system";
  return known;
}

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(Templates templates, std::string main, OrderedJson special, Clock clock,
                    std::string_view family)
      : templates_(std::move(templates)),
        main_(std::move(main)),
        special_(std::move(special)),
        clock_(std::move(clock)),
        family_(family) {
    for (const auto& [name, one] : templates_)
      if (one) forms_[name] = find_history_form(*one, special_, clock_);
  }

  Result<std::string> render(const Conversation& conversation) const override {
    const bool tools = has_tools(conversation) && templates_.contains("tool_use");
    return render_named(tools && main_ == "default" ? std::string("tool_use") : main_,
                        conversation);
  }

  Result<std::string> render_with(const std::string& choice,
                                  const Conversation& conversation) const override {
    if (templates_.contains(choice)) return render_named(choice, conversation);
    const auto parsed = Template::parse(choice);
    if (!parsed) return invalid(parsed.error().what);
    const HistoryForm form = has_calls(conversation.messages)
                                 ? find_history_form(*parsed, special_, clock_)
                                 : HistoryForm{};
    return render_one(*parsed, form, conversation);
  }

  std::string_view builtin_family() const override { return family_; }

  std::string source() const override {
    std::string all;
    for (const auto& [name, one] : templates_)
      if (one) all += one->source() + "\n";
    return all;
  }

 private:
  static bool has_tools(const Conversation& conversation) {
    return !conversation.tools.is_null() && !conversation.tools.empty();
  }

  Result<std::string> render_named(const std::string& name,
                                   const Conversation& conversation) const {
    const Result<Template>& chosen = templates_.at(name);
    return chosen ? render_one(*chosen, forms_.at(name), conversation) : chosen.error();
  }

  // kwargs win over special tokens, as they do in Hugging Face's apply_chat_template.
  Result<std::string> render_one(const Template& chosen, const HistoryForm& form,
                                 const Conversation& conversation) const {
    const bool continues = conversation.continue_final_message;
    if (continues && conversation.add_generation_prompt)
      return invalid(
          "continue_final_message and add_generation_prompt exclude each other: the reply either "
          "continues the last message or opens a new one",
          "continue_final_message");
    // Conversations are large, so they are not copied.
    static const OrderedJson null;
    const OrderedJson generates = conversation.add_generation_prompt;
    const auto known = with_known_roles(conversation.messages, chosen);
    jinja::Budget budget{jinja::Limits()};
    const auto formed = in_history_form(known ? *known : conversation.messages, form, budget);
    if (!formed) return in_template(formed.error());
    const OrderedJson& messages = *formed ? **formed : known ? *known : conversation.messages;
    std::vector<Template::Variable> variables;
    for (const auto& [name, value] : special_.items()) variables.push_back({name, &value});
    variables.push_back({"messages", &messages});
    variables.push_back({"tools", has_tools(conversation) ? &conversation.tools : &null});
    variables.push_back({"documents", &null});
    variables.push_back({"add_generation_prompt", &generates});
    if (conversation.kwargs.is_object()) {
      for (const std::string_view field : reserved_template_variables().first(kFields))
        if (conversation.kwargs.contains(field))
          return invalid(fmt::format("chat_template_kwargs must not set \"{}\"", field),
                         "chat_template_kwargs");
      for (const auto& [name, value] : conversation.kwargs.items())
        variables.push_back({name, &value});
    }
    auto text = chosen.render(variables, clock_, budget);
    if (!text) return in_template(text.error());
    return continues ? cut_in_final_message(std::move(*text), conversation.messages)
                     : std::move(text);
  }

  Templates templates_;
  Forms forms_;
  std::string main_;  // the default template, a key of templates_
  OrderedJson special_;
  Clock clock_;
  std::string_view family_;
};

Templates parsed(const std::vector<NamedTemplate>& sources) {
  Templates out;
  for (const NamedTemplate& source : sources) {
    auto one = Template::parse(source.text);
    if (!one) one = invalid(source.where + ": " + one.error().what);
    out.insert_or_assign(source.name, std::move(one));
  }
  return out;
}

// Templates that are used by default must parse.
Result<std::unique_ptr<ChatTemplate>> build(Templates templates, const std::string& choice,
                                            OrderedJson special, Clock clock,
                                            std::string_view family = {}) {
  std::string main = templates.size() == 1 ? templates.begin()->first : "default";
  if (!choice.empty()) main = choice;
  if (!templates.contains(main))
    return invalid(
        fmt::format("the model has the chat templates {} and no default; choose one "
                    "with --chat-template",
                    names_of(templates)));
  for (const auto& [name, one] : templates)
    if (!one && (name == main || (name == "tool_use" && main == "default"))) return one.error();
  if (!clock) clock = [] { return std::time(nullptr); };
  return std::unique_ptr<ChatTemplate>(std::make_unique<JinjaChatTemplate>(
      std::move(templates), std::move(main), std::move(special), std::move(clock), family));
}

// Broken templates do not matter if --chat-template names another one.
std::vector<NamedTemplate> read_own(const std::string& dir, const Json& config, bool forgive) try {
  return read_templates(dir, config);
} catch (const LoadError&) {
  if (!forgive) throw;
  return {};
}

bool has_name(const std::vector<NamedTemplate>& templates, const std::string& name) {
  return std::any_of(templates.begin(), templates.end(),
                     [&](const NamedTemplate& one) { return one.name == name; });
}

}  // namespace

Result<std::string> ChatTemplate::render_with(const std::string& choice,
                                              const Conversation& conversation) const {
  const auto made = make_chat_template(choice, Json::object());
  return made ? (*made)->render(conversation) : made.error();
}

std::span<const std::string_view> reserved_template_variables() { return kReserved; }

std::optional<std::string_view> find_reserved_variable(const OrderedJson& kwargs) {
  for (const std::string_view name : kReserved)
    if (kwargs.is_object() && kwargs.contains(name)) return name;
  return std::nullopt;
}

Result<std::unique_ptr<ChatTemplate>> load_chat_template(const std::string& model_dir,
                                                         const std::string& override_text,
                                                         const std::string& config_dir) try {
  const Json config = read_template_config(model_dir);
  OrderedJson special = read_special_tokens(model_dir, config);
  const auto own = read_own(model_dir, config, !override_text.empty());
  if (!override_text.empty()) {
    if (has_name(own, override_text))
      return build(parsed(own), override_text, std::move(special), {});
    const auto given = read_override(override_text);
    if (!given) return given.error();
    Templates all = parsed(own);
    all.erase("tool_use");
    all.erase("default");
    all.merge(parsed({*given}));
    return build(std::move(all), "default", std::move(special), {});
  }
  if (!own.empty()) return build(parsed(own), "", std::move(special), {});
  const std::string& dir = config_dir.empty() ? model_dir : config_dir;
  if (const BuiltinTemplate* found = find_builtin_template(read_model_hints(dir, config)))
    return build(parsed({{"default", std::string(found->text), "built-in template"}}), "",
                 std::move(special), {}, found->family);
  return Error{Code::kNotFound,
               model_dir + ": the model has no chat template; give one with --chat-template",
               "chat_template"};
} catch (const LoadError& e) {
  return invalid(e.what());
}

Result<std::unique_ptr<ChatTemplate>> make_chat_template(std::string text, const Json& special,
                                                         std::function<std::time_t()> clock) {
  return build(parsed({{"default", std::move(text), "chat template"}}), "", OrderedJson(special),
               std::move(clock));
}

}  // namespace skiff::text
