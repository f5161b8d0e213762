#include "serve/messages/to_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "serve/openai/values.h"
#include "serve/turn/items.h"

namespace skiff::messages {
namespace {

using openai::described;
using turn::invalid, turn::member, turn::type_of, turn::unsupported;

// A string, or the text of a list of text blocks.
Result<std::string> text_of(const OrderedJson& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array())
    return invalid("messages",
                   place + " must be a string or a list of blocks, but is " + described(value));
  std::string text;
  for (const OrderedJson& block : value) {
    const OrderedJson* words = member(block, "text");
    if (type_of(block) != "text" || !words || !words->is_string())
      return unsupported("messages", place + " has a block that is not text: " +
                                         described(OrderedJson(type_of(block))));
    text += (text.empty() ? "" : "\n") + words->get_ref<const std::string&>();
  }
  return text;
}

std::optional<Error> check_message(const OrderedJson& message, const std::string& place) {
  const OrderedJson *role = member(message, "role"), *content = member(message, "content");
  if (!role || (*role != "user" && *role != "assistant" && *role != "system"))
    return invalid("messages", place + ".role must be \"user\" or \"assistant\"");
  if (!content || !(content->is_string() || content->is_array()))
    return invalid("messages", place + ".content must be a string or a list of blocks");
  return std::nullopt;
}

// Messages of one role that follow each other are one turn, as Anthropic's service has it: the
// message with the blocks of all of them. Many templates refuse two turns of one role.
OrderedJson one_turn(std::span<const OrderedJson> messages) {
  OrderedJson blocks = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    const OrderedJson& content = message["content"];
    if (content.is_array())
      blocks.insert(blocks.end(), content.begin(), content.end());
    else if (!content.get_ref<const std::string&>().empty())
      blocks.push_back({{"type", "text"}, {"text", content}});
  }
  return {{"role", messages.front()["role"]}, {"content", std::move(blocks)}};
}

// The messages of a chat that stand for one message, which may hold several results of tools.
class Translator {
 public:
  // `message` has passed check_message().
  std::optional<Error> add(const OrderedJson& message, const std::string& place) {
    const OrderedJson &role = message["role"], &content = message["content"];
    if (content.is_string()) {
      chat_.push_back({{"role", role}, {"content", content}});
      return std::nullopt;
    }
    return role == "assistant" ? assistant(content, place) : user(role, content, place);
  }

  OrderedJson take() { return std::move(chat_); }
  void add_system(std::string text) {
    chat_.push_back({{"role", "system"}, {"content", std::move(text)}});
  }

 private:
  std::optional<Error> assistant(const OrderedJson& blocks, const std::string& place) {
    OrderedJson text = OrderedJson::array(), calls = OrderedJson::array();
    std::string thoughts;
    call_ids_.clear();
    for (const OrderedJson& block : blocks) {
      const std::string type = type_of(block);
      if (type == "text") {
        text.push_back(block_text(block));
      } else if (type == "thinking") {
        const OrderedJson* words = member(block, "thinking");
        if (words && words->is_string()) thoughts += words->get_ref<const std::string&>();
      } else if (type == "tool_use") {
        if (auto error = add_call(block, place, calls)) return error;
      } else if (type != "redacted_thinking") {
        return unsupported("messages",
                           fmt::format("{}.content has a block of type {}, which is not supported",
                                       place, described(OrderedJson(type))));
      }
    }
    OrderedJson message = {{"role", "assistant"}, {"content", std::move(text)}};
    if (message["content"].empty()) message["content"] = "";
    if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    chat_.push_back(std::move(message));
    return std::nullopt;
  }

  static OrderedJson block_text(const OrderedJson& block) {
    const OrderedJson* words = member(block, "text");
    return {{"type", "text"}, {"text", words ? *words : OrderedJson()}};
  }

  std::optional<Error> add_call(const OrderedJson& block, const std::string& place,
                                OrderedJson& calls) {
    const OrderedJson *id = member(block, "id"), *name = member(block, "name"),
                      *input = member(block, "input");
    if (!id || !id->is_string() || !name || !name->is_string())
      return invalid("messages", place + ".content has a tool_use without id and name");
    if (call_ids_.size() == turn::kMaxCalls) return turn::too_many_calls(place);
    call_ids_.push_back(id->get<std::string>());
    calls.push_back(
        {{"id", *id},
         {"type", "function"},
         {"function", {{"name", *name}, {"arguments", input ? *input : OrderedJson::object()}}}});
    return std::nullopt;
  }

  // Results come before the rest of the message, in the order of the calls: templates match them
  // by place.
  std::optional<Error> user(const OrderedJson& role, const OrderedJson& blocks,
                            const std::string& place) {
    std::multimap<size_t, OrderedJson> results;
    OrderedJson rest = OrderedJson::array();
    for (const OrderedJson& block : blocks) {
      if (type_of(block) == "tool_result") {
        auto result = tool_result(block, place);
        if (!result) return result.error();
        results.insert(std::move(*result));
      } else if (type_of(block) == "text") {
        rest.push_back(block_text(block));
      } else {
        return unsupported("messages",
                           fmt::format("{}.content has a block of type {}, which is not supported",
                                       place, described(OrderedJson(type_of(block)))));
      }
    }
    for (auto& [order, message] : results) chat_.push_back(std::move(message));
    if (!rest.empty() || results.empty())
      chat_.push_back({{"role", role}, {"content", std::move(rest)}});
    return std::nullopt;
  }

  Result<std::pair<size_t, OrderedJson>> tool_result(const OrderedJson& block,
                                                     const std::string& place) {
    const OrderedJson *id = member(block, "tool_use_id"), *content = member(block, "content");
    if (!id || !id->is_string())
      return invalid("messages", place + ".content has a tool_result without tool_use_id");
    const auto known = std::ranges::find(call_ids_, id->get_ref<const std::string&>());
    if (known == call_ids_.end())
      return invalid("messages", fmt::format("{}.content has a tool_result for {}, which is no "
                                             "tool_use of the message before",
                                             place, described(*id)));
    auto text = content ? text_of(*content, place + ".content") : Result<std::string>("");
    if (!text) return text.error();
    OrderedJson message = {{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(*text)}};
    return std::pair(static_cast<size_t>(known - call_ids_.begin()), std::move(message));
  }

  OrderedJson chat_ = OrderedJson::array();
  std::vector<std::string> call_ids_;  // those of the latest message with calls
};

std::optional<Error> add_turns(const std::vector<OrderedJson>& messages, Translator& translator) {
  const auto place = [](size_t i) { return fmt::format("messages[{}]", i); };
  for (size_t i = 0; i < messages.size(); ++i)
    if (auto error = check_message(messages[i], place(i))) return error;
  for (size_t begin = 0, end = 0; begin < messages.size(); begin = end) {
    const OrderedJson& role = messages[begin]["role"];
    for (end = begin + 1; end < messages.size(); ++end)
      if (role == "system" || messages[end]["role"] != role) break;
    auto error = end == begin + 1
                     ? translator.add(messages[begin], place(begin))
                     : translator.add(one_turn(std::span(messages).subspan(begin, end - begin)),
                                      fmt::format("{} to [{}]", place(begin), end - 1));
    if (error) return error;
  }
  return std::nullopt;
}

Result<OrderedJson> chat_messages(const OrderedJson& body) {
  Translator translator;
  if (const OrderedJson* system = member(body, "system")) {
    auto text = text_of(*system, "system");
    if (!text) return Error{text.error().code, text.error().what, "system"};
    if (!text->empty()) translator.add_system(std::move(*text));
  }
  const OrderedJson* messages = member(body, "messages");
  if (!messages) return Error{Code::kNotFound, "messages is required", "messages"};
  if (!messages->is_array() || messages->empty())
    return invalid("messages", "messages must be a list with at least one message");
  if (auto error = add_turns(messages->get_ref<const OrderedJson::array_t&>(), translator))
    return *error;
  return translator.take();
}

Result<OrderedJson> chat_tools(const OrderedJson& tools) {
  if (!tools.is_array())
    return invalid("tools", "tools must be a list, but is " + described(tools));
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& tool : tools) {
    const std::string type = type_of(tool);
    if (!type.empty() && type != "custom")
      return unsupported("tools",
                         fmt::format("tools has one of type {}; only tools of the client's "
                                     "own are supported",
                                     described(OrderedJson(type))));
    const OrderedJson *name = member(tool, "name"), *schema = member(tool, "input_schema");
    if (!name || !name->is_string()) return invalid("tools", "tools has a tool without a name");
    OrderedJson function = {{"name", *name}};
    if (const OrderedJson* words = member(tool, "description")) function["description"] = *words;
    if (schema && !schema->is_object())
      return invalid("tools",
                     fmt::format("tools has {} with an input_schema that must be an object, "
                                 "but is {}",
                                 described(*name), described(*schema)));
    if (schema) function["parameters"] = *schema;
    if (const OrderedJson* strict = member(tool, "strict")) function["strict"] = *strict;
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

// {"type": "json_schema", "schema": ...}, which has no name here.
std::optional<Error> set_format(const OrderedJson& format, OrderedJson& chat) {
  const OrderedJson* schema = member(format, "schema");
  if (type_of(format) != "json_schema" || !schema)
    return invalid("output_config",
                   "output_config.format must be of type json_schema with a schema, but is " +
                       described(format));
  chat["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "output"}, {"schema", *schema}}}};
  return std::nullopt;
}

// `output_format` is where the format stood while it was new; clients of that time send it.
std::optional<Error> set_output(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson *output = member(body, "output_config"), *older = member(body, "output_format");
  if (output && !output->is_object())
    return invalid("output_config",
                   "output_config must be an object, but is " + described(*output));
  const OrderedJson* format = output ? member(*output, "format") : nullptr;
  if (format && older)
    return invalid("output_format",
                   "output_format is the older name of output_config.format; give one of them");
  if (output)
    if (const OrderedJson* effort = member(*output, "effort")) chat["reasoning_effort"] = *effort;
  if (!format) format = older;
  return format ? set_format(*format, chat) : std::nullopt;
}

std::optional<Error> set_tool_choice(const OrderedJson& choice, OrderedJson& chat) {
  const std::string type = type_of(choice);
  const OrderedJson* name = member(choice, "name");
  if (type == "auto" || type == "none")
    chat["tool_choice"] = type;
  else if (type == "any")
    chat["tool_choice"] = "required";
  else if (type == "tool" && name)
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  else
    return invalid("tool_choice",
                   "tool_choice must be of type auto, any, none, or tool with a name, but is " +
                       described(choice));
  const OrderedJson* sole = member(choice, "disable_parallel_tool_use");
  if (!sole) return std::nullopt;
  if (!sole->is_boolean())
    return invalid(
        "tool_choice",
        "tool_choice.disable_parallel_tool_use must be true or false, but is " + described(*sole));
  chat["parallel_tool_calls"] = *sole != true;
  return std::nullopt;
}

// What an answer shows of its reasoning. What is said of `thinking` besides is the chat's.
std::optional<Error> check_display(const OrderedJson& body) {
  const OrderedJson* thinking = member(body, "thinking");
  const OrderedJson* display = thinking ? member(*thinking, "display") : nullptr;
  if (!display || *display == "summarized" || *display == "omitted") return std::nullopt;
  return invalid("thinking", "thinking.display must be \"summarized\" or \"omitted\", but is " +
                                 described(*display));
}

// These fields become another one, or none; all others are passed on as they are.
constexpr std::string_view kOwn[] = {
    "messages",     "system",        "tools",         "tool_choice", "stop_sequences", "metadata",
    "service_tier", "output_config", "output_format", "mcp_servers", "container"};

}  // namespace

Result<OrderedJson> to_chat(const OrderedJson& body, bool counts) {
  OrderedJson chat = OrderedJson::object();
  for (const auto& [name, value] : body.items())
    if (std::ranges::find(kOwn, name) == std::end(kOwn)) chat[name] = value;
  auto messages = chat_messages(body);
  if (!messages) return messages.error();
  chat["messages"] = std::move(*messages);
  turn::continue_last_message(chat);
  if (!counts && !member(body, "max_tokens"))
    return Error{Code::kNotFound, "max_tokens is required", "max_tokens"};
  if (const OrderedJson* tools = member(body, "tools")) {
    auto list = chat_tools(*tools);
    if (!list) return list.error();
    chat["tools"] = std::move(*list);
  }
  if (const OrderedJson* choice = member(body, "tool_choice"))
    if (auto error = set_tool_choice(*choice, chat)) return *error;
  if (auto error = check_display(body)) return *error;
  if (const OrderedJson* stops = member(body, "stop_sequences")) chat["stop"] = *stops;
  if (auto error = set_output(body, chat)) return *error;
  for (const char* hosted : {"mcp_servers", "container"})
    if (const OrderedJson* value = member(body, hosted); value && !value->empty())
      return unsupported(hosted,
                         fmt::format("{} is not supported: this server runs no tools", hosted));
  return chat;
}

}  // namespace skiff::messages
