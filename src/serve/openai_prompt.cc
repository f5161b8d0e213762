#include "serve/openai_prompt.h"

#include <limits>

namespace skiff {
namespace {

constexpr size_t kMaxPrompts = 2048, kMaxMessages = 65536, kMaxTools = 1024;

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

std::string place(size_t index) { return fmt::format("messages[{}]", index); }

// Text parts become one string, a line each: that is what most templates expect.
std::optional<Error> flatten_content(OrderedJson& message, size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) return std::nullopt;
  if (!content->is_array())
    return invalid("messages", place(index) + ".content must be a string, a list of parts or null");
  std::string text;
  for (const OrderedJson& part : *content) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      return invalid("messages", place(index) + ".content has a part without a \"type\"");
    if (*type != "text")
      return invalid("messages", place(index) + ".content has a part of type " +
                                     type->dump().substr(0, 40) + "; only \"text\" is supported");
    const auto words = part.find("text");
    if (words == part.end() || !words->is_string())
      return invalid("messages", place(index) + ".content has a text part without \"text\"");
    if (&part != &content->front()) text += "\n";
    text += words->get<std::string>();
  }
  *content = std::move(text);
  return std::nullopt;
}

std::optional<Error> check_message(OrderedJson& message, size_t index) {
  if (!message.is_object()) return invalid("messages", place(index) + " must be an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    return invalid("messages", place(index) + " has no \"role\"");
  if (!message.contains("content")) {
    if (!message.contains("tool_calls") && *role != "assistant")
      return invalid("messages", place(index) + " has no \"content\"");
    message["content"] = nullptr;
  }
  return flatten_content(message, index);
}

}  // namespace

bool read_token_ids(const OrderedJson& value, std::vector<Token>& out) {
  if (!value.is_array()) return false;
  for (const OrderedJson& item : value) {
    if (!item.is_number_unsigned()) return false;
    const auto id = item.get<uint64_t>();
    if (id > static_cast<uint64_t>(std::numeric_limits<Token>::max())) return false;
    out.push_back(static_cast<Token>(id));
  }
  return true;
}

std::optional<std::string> read_tools(const OrderedJson& value, Conversation& conversation) {
  if (!value.is_array()) return "must be a list";
  if (value.size() > kMaxTools) return fmt::format("has more than {} entries", kMaxTools);
  for (const OrderedJson& tool : value) {
    const auto function = tool.is_object() ? tool.find("function") : tool.end();
    if (!tool.is_object() || function == tool.end() || !function->is_object() ||
        !function->contains("name") || !(*function)["name"].is_string())
      return "must be a list of {\"type\": \"function\", \"function\": {\"name\": ...}}";
  }
  if (!value.empty()) conversation.tools = value;
  return std::nullopt;
}

std::optional<Error> read_messages(const OrderedJson& body, OpenAiCall& call) {
  if (!call.use_tools) call.conversation.tools = nullptr;
  const auto messages = body.find("messages");
  const bool absent = messages == body.end() || messages->is_null();
  if (!call.prompt_token_ids.empty() && (absent || messages->empty())) {
    call.prompts.emplace_back(std::move(call.prompt_token_ids));
    return std::nullopt;
  }
  if (absent) return invalid("messages", "messages is required");
  if (!messages->is_array() || messages->empty())
    return invalid("messages", "messages must be a list with at least one message");
  if (std::vector<Token> tokens; read_token_ids(*messages, tokens)) {
    call.prompts.emplace_back(std::move(tokens));
    return std::nullopt;
  }
  if (messages->size() > kMaxMessages)
    return invalid("messages", fmt::format("messages has more than {} entries", kMaxMessages));
  OrderedJson checked = *messages;
  for (size_t i = 0; i < checked.size(); ++i)
    if (auto error = check_message(checked[i], i)) return error;
  if (call.raw_chat) {
    const OrderedJson& content = checked[0]["content"];
    call.prompts.emplace_back(content.is_string() ? content.get<std::string>() : std::string());
    return std::nullopt;
  }
  call.conversation.messages = std::move(checked);
  call.prompts.emplace_back(std::move(call.conversation));
  return std::nullopt;
}

std::optional<Error> read_prompt(const OrderedJson& body, OpenAiCall& call) {
  static constexpr const char* kShape =
      "prompt must be a string, a list of strings, a list of token ids, or a list of such lists";
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || prompt->is_null()) {
    if (call.prompt_token_ids.empty()) return invalid("prompt", "prompt is required");
    call.prompts.emplace_back(std::move(call.prompt_token_ids));
    return std::nullopt;
  }
  if (prompt->is_string()) {
    call.prompts.emplace_back(prompt->get<std::string>());
    return std::nullopt;
  }
  if (!prompt->is_array() || prompt->empty()) return invalid("prompt", kShape);
  if (prompt->front().is_number()) {
    std::vector<Token> tokens;
    if (!read_token_ids(*prompt, tokens)) return invalid("prompt", kShape);
    call.prompts.emplace_back(std::move(tokens));
    return std::nullopt;
  }
  if (prompt->size() * static_cast<size_t>(call.request.n) > kMaxPrompts)
    return invalid("prompt", fmt::format("prompts times n is more than {}", kMaxPrompts));
  for (const OrderedJson& one : *prompt) {
    std::vector<Token> tokens;
    if (one.is_string())
      call.prompts.emplace_back(one.get<std::string>());
    else if (one.is_array() && read_token_ids(one, tokens))
      call.prompts.emplace_back(std::move(tokens));
    else
      return invalid("prompt", kShape);
  }
  return std::nullopt;
}

}  // namespace skiff
