#include "serve/responses/to_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "serve/openai/values.h"
#include "serve/turn/items.h"

namespace skiff::responses {
namespace {

using openai::described;
using turn::invalid, turn::member, turn::type_of, turn::unsupported;

// Returns a string as it is, or joins the text of a list of parts.
Result<std::string> text_of(const OrderedJson& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array())
    return invalid("input",
                   place + " must be a string or a list of parts, but is " + described(value));
  std::string text;
  for (const OrderedJson& part : value) {
    const std::string type = type_of(part);
    const OrderedJson* words = member(part, type == "refusal" ? "refusal" : "text");
    const bool known = type == "input_text" || type == "output_text" || type == "text" ||
                       type == "refusal" || type == "reasoning_text" || type == "summary_text";
    if (!known)
      return unsupported("input", fmt::format("{} has a part of type {}; only text is supported",
                                              place, described(OrderedJson(type))));
    if (!words || !words->is_string())
      return invalid("input", fmt::format("{} has a part of type {} without text", place, type));
    if (!text.empty()) text += "\n";
    text += words->get_ref<const std::string&>();
  }
  return text;
}

// Reasoning and calls are items of their own here, but belong to one message of a chat.
class Translator {
 public:
  // Many templates take one message of the system, and that only at the beginning, so what the
  // developer says behind the instructions belongs to them.
  void add_message(const std::string& role, std::string text) {
    flush();
    if (role == "system" && chat_.size() == 1 && chat_[0]["role"] == role) {
      chat_[0]["content"].get_ref<std::string&>() += "\n\n" + text;
      return;
    }
    chat_.push_back({{"role", role}, {"content", std::move(text)}});
  }

  std::optional<Error> add(const OrderedJson& item, const std::string& place) {
    if (const OrderedJson* type = member(item, "type"); type && !type->is_string())
      return invalid("input",
                     fmt::format("{}.type must be a string, but is {}", place, described(*type)));
    const std::string type = type_of(item);
    if (type.empty() || type == "message") return message(item, place);
    if (type == "function_call") return call(item, place);
    if (type == "function_call_output") return output(item, place);
    if (type == "reasoning") return reasoning(item, place);
    return unsupported("input", fmt::format("{} is of type {}, which is not supported", place,
                                            described(OrderedJson(type))));
  }

  OrderedJson take() {
    flush();
    return std::move(chat_);
  }

 private:
  std::optional<Error> message(const OrderedJson& item, const std::string& place) {
    const OrderedJson *role = member(item, "role"), *content = member(item, "content");
    if (!role || !role->is_string()) return invalid("input", place + " has no \"role\"");
    if (!content) return invalid("input", place + " has no \"content\"");
    auto text = text_of(*content, place + ".content");
    if (!text) return text.error();
    if (*role != "assistant") {
      // Templates know the role system; developer is its newer name.
      add_message(*role == "developer" ? "system" : role->get<std::string>(), std::move(*text));
      return std::nullopt;
    }
    if (assistant_.contains("content") || assistant_.contains("tool_calls")) flush();
    assistant_["content"] = std::move(*text);
    return std::nullopt;
  }

  std::optional<Error> call(const OrderedJson& item, const std::string& place) {
    const OrderedJson *id = member(item, "call_id"), *name = member(item, "name"),
                      *arguments = member(item, "arguments");
    if (!id || !id->is_string() || !name || !name->is_string())
      return invalid("input", place + " has no \"call_id\" or no \"name\"");
    assistant_["tool_calls"].push_back(
        {{"id", *id},
         {"type", "function"},
         {"function", {{"name", *name}, {"arguments", arguments ? *arguments : OrderedJson()}}}});
    return std::nullopt;
  }

  std::optional<Error> output(const OrderedJson& item, const std::string& place) {
    const OrderedJson *id = member(item, "call_id"), *value = member(item, "output");
    if (!id || !id->is_string()) return invalid("input", place + " has no \"call_id\"");
    auto text = value ? text_of(*value, place + ".output") : Result<std::string>("");
    if (!text) return text.error();
    flush();
    chat_.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(*text)}});
    return std::nullopt;
  }

  std::optional<Error> reasoning(const OrderedJson& item, const std::string& place) {
    flush();
    const OrderedJson* content = member(item, "content");
    if (!content) return std::nullopt;
    auto text = text_of(*content, place + ".content");
    if (!text) return text.error();
    if (!text->empty()) assistant_["reasoning_content"] = std::move(*text);
    return std::nullopt;
  }

  void flush() {
    const bool says = assistant_.contains("content") || assistant_.contains("tool_calls");
    if (says) {
      assistant_["role"] = "assistant";
      if (!assistant_.contains("content")) assistant_["content"] = "";
      chat_.push_back(std::move(assistant_));
    }
    assistant_ = OrderedJson::object();
  }

  OrderedJson chat_ = OrderedJson::array();
  OrderedJson assistant_ = OrderedJson::object();  // the message that items still add to
};

Result<OrderedJson> chat_messages(const OrderedJson& body) {
  Translator translator;
  if (const OrderedJson* instructions = member(body, "instructions")) {
    if (!instructions->is_string())
      return invalid("instructions",
                     "instructions must be a string, but is " + described(*instructions));
    translator.add_message("system", instructions->get<std::string>());
  }
  const OrderedJson* input = member(body, "input");
  if (!input) return Error{Code::kNotFound, "input is required", "input"};
  if (input->is_string()) {
    translator.add_message("user", input->get<std::string>());
    return translator.take();
  }
  if (!input->is_array() || input->empty())
    return invalid("input", "input must be a string or a list of items, and not empty");
  for (size_t i = 0; i < input->size(); ++i)
    if (auto error = translator.add((*input)[i], fmt::format("input[{}]", i))) return *error;
  return translator.take();
}

Result<OrderedJson> chat_tools(const OrderedJson& tools) {
  if (!tools.is_array())
    return invalid("tools", "tools must be a list, but is " + described(tools));
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& tool : tools) {
    if (type_of(tool) != "function")
      return unsupported("tools", fmt::format("tools has one of type {}; only functions are "
                                              "supported, because this server runs no tools",
                                              described(OrderedJson(type_of(tool)))));
    OrderedJson function = OrderedJson::object();
    for (const char* name : {"name", "description", "parameters", "strict"})
      if (const OrderedJson* value = member(tool, name)) function[name] = *value;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

std::optional<Error> refuse_state(const OrderedJson& body) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (member(body, name))
      return unsupported(name, fmt::format("{} is not supported: this server keeps no responses; "
                                           "send the whole conversation as input",
                                           name));
  if (const OrderedJson* background = member(body, "background"); background && *background == true)
    return unsupported("background", "background must be false: this server keeps no responses");
  if (const OrderedJson* truncation = member(body, "truncation");
      truncation && *truncation != "disabled")
    return unsupported("truncation",
                       "truncation must be \"disabled\": an input that is too long is refused");
  return std::nullopt;
}

Error must_be(const char* kind, const char* field, const OrderedJson& value) {
  return invalid(field, fmt::format("{} must be {}, but is {}", field, kind, described(value)));
}

// The other members that OpenAI's list may have are about tools that this server does not run, or
// ask for reasoning in a form that can be sent back, which it always has.
std::optional<Error> check_include(const OrderedJson& include) {
  if (!include.is_array()) return must_be("a list of strings", "include", include);
  for (const OrderedJson& one : include) {
    if (!one.is_string())
      return invalid("include", "include must be a list of strings, but holds " + described(one));
    if (one == "message.output_text.logprobs")
      return unsupported(
          "include",
          "include holds \"message.output_text.logprobs\", but log-probabilities are "
          "not supported by this endpoint");
  }
  return std::nullopt;
}

std::optional<Error> check_types(const OrderedJson& body) {
  for (const char* field : {"reasoning", "text"})
    if (const OrderedJson* value = member(body, field); value && !value->is_object())
      return must_be("an object", field, *value);
  for (const char* field : {"background", "store"})
    if (const OrderedJson* value = member(body, field); value && !value->is_boolean())
      return must_be("true or false", field, *value);
  const OrderedJson* include = member(body, "include");
  return include ? check_include(*include) : std::nullopt;
}

std::optional<Error> set_text(const OrderedJson& text, OrderedJson& chat) {
  if (const OrderedJson* verbosity = member(text, "verbosity")) chat["verbosity"] = *verbosity;
  const OrderedJson* format = member(text, "format");
  if (format && !format->is_object()) return must_be("an object", "text.format", *format);
  if (!format || type_of(*format) == "text") return std::nullopt;
  if (type_of(*format) == "json_schema" && !member(*format, "schema"))
    return invalid("text.format", "text.format of type json_schema needs \"schema\"");
  OrderedJson schema = OrderedJson::object();
  for (const auto& [name, value] : format->items())
    if (name != "type") schema[name] = value;
  chat["response_format"] = {{"type", type_of(*format)}, {"json_schema", std::move(schema)}};
  return std::nullopt;
}

// Fields that become another one, or none; all others go along.
constexpr std::string_view kOwn[] = {
    "input",         "instructions",   "tools",        "max_output_tokens",
    "reasoning",     "text",           "include",      "previous_response_id",
    "conversation",  "prompt",         "background",   "truncation",
    "store",         "max_tool_calls", "top_logprobs", "context_management",
    "stream_options"};

}  // namespace

Result<OrderedJson> to_chat(const OrderedJson& body) {
  if (auto error = check_types(body)) return *error;
  if (auto error = refuse_state(body)) return *error;
  if (const OrderedJson* top = member(body, "top_logprobs"); top && *top != 0)
    return unsupported("top_logprobs", "top_logprobs is not supported by this endpoint");
  OrderedJson chat = OrderedJson::object();
  for (const auto& [name, value] : body.items())
    if (std::ranges::find(kOwn, name) == std::end(kOwn)) chat[name] = value;
  auto messages = chat_messages(body);
  if (!messages) return messages.error();
  chat["messages"] = std::move(*messages);
  if (const OrderedJson* tools = member(body, "tools")) {
    auto list = chat_tools(*tools);
    if (!list) return list.error();
    chat["tools"] = std::move(*list);
  }
  if (const OrderedJson* most = member(body, "max_output_tokens"))
    chat["max_completion_tokens"] = *most;
  if (const OrderedJson* reasoning = member(body, "reasoning"))
    if (const OrderedJson* effort = member(*reasoning, "effort"))
      chat["reasoning_effort"] = *effort;
  if (const OrderedJson* text = member(body, "text"))
    if (auto error = set_text(*text, chat)) return *error;
  return chat;
}

}  // namespace skiff::responses
