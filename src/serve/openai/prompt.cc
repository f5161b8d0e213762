#include "serve/openai/prompt.h"

#include <algorithm>
#include <array>

#include "serve/openai/message_history.h"
#include "serve/openai/values.h"
#include "serve/service/thinking.h"

namespace skiff::openai {
namespace {

constexpr size_t kMaxPrompts = 2048, kMaxMessages = 65536, kMaxTools = 1024, kMaxKwargs = 256;
// OpenAI allows names of 64 characters; clients that put a server's name before a tool's send more.
constexpr size_t kMaxToolName = 256;  // bytes

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

Error missing(std::string field) {
  std::string what = field + " is required";
  return Error{Code::kNotFound, std::move(what), std::move(field)};
}

std::string place(size_t index) { return fmt::format("messages[{}]", index); }

// What a reasoning model has thought, as a part of its message. Not empty if the part is one.
std::string_view reasoning_field(const OrderedJson& part) {
  const auto type = part.is_object() ? part.find("type") : part.end();
  if (!part.is_object() || type == part.end()) return {};
  return *type == "thinking" ? "thinking" : *type == "reasoning" ? "text" : "";
}

// The text of one part of a message's content, or an Error.
Result<std::string> text_of_part(const OrderedJson& part, size_t index) {
  const auto type = part.is_object() ? part.find("type") : part.end();
  if (!part.is_object() || type == part.end() || !type->is_string())
    return invalid("messages", place(index) + ".content has a part without a \"type\"");
  if (*type != "text" && *type != "refusal")
    return Error{Code::kUnsupported,
                 fmt::format("{}.content has a part of type {}; only \"text\" is supported",
                             place(index), described(*type)),
                 "messages"};
  const auto words = part.find(type->get_ref<const std::string&>());
  if (words == part.end() || !words->is_string())
    return invalid("messages", fmt::format("{}.content has a part of type {} without such a string",
                                           place(index), described(*type)));
  return words->get<std::string>();
}

// Joins text parts with newlines into one string, which most templates expect.
std::optional<Error> flatten_content(OrderedJson& message, size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) return std::nullopt;
  if (!content->is_array())
    return invalid("messages", place(index) + ".content must be a string, a list of parts or null");
  std::string text, thoughts;
  bool first = true;
  for (const OrderedJson& part : *content) {
    if (const auto field = reasoning_field(part); !field.empty()) {
      const auto words = part.find(field);
      if (words == part.end() || !words->is_string())
        return invalid("messages", place(index) + ".content has a thought without text");
      thoughts += words->get_ref<const std::string&>();
      continue;
    }
    auto words = text_of_part(part, index);
    if (!words) return words.error();
    if (!std::exchange(first, false)) text += "\n";
    text += *words;
  }
  *content = std::move(text);
  if (!thoughts.empty() && !message.contains("reasoning_content"))
    message["reasoning_content"] = std::move(thoughts);
  return std::nullopt;
}

// OpenAI's roles, and those that templates of some families use for the results of tools:
// "observation" (GLM, ERNIE), "ipython" (Llama); "model" is Gemma's assistant. Other roles are
// refused, because most templates silently skip such a message or open a turn that the model was
// not trained on.
constexpr std::array<std::string_view, 9> kRoles{"system",      "developer", "user",
                                                 "assistant",   "tool",      "function",
                                                 "observation", "ipython",   "model"};

std::optional<Error> check_role(const OrderedJson& message, size_t index) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    return invalid("messages", place(index) + " has no \"role\"");
  if (std::ranges::find(kRoles, role->get_ref<const std::string&>()) != kRoles.end())
    return std::nullopt;
  std::string roles;
  for (const std::string_view known : kRoles) (roles += roles.empty() ? "" : ", ") += known;
  return invalid("messages", fmt::format("{}.role must be one of {}, but is {}", place(index),
                                         roles, described(*role)));
}

std::optional<Error> check_message(OrderedJson& message, size_t index) {
  if (!message.is_object())
    return invalid("messages", place(index) + " must be an object, but is " + described(message));
  if (auto error = check_role(message, index)) return error;
  if (!message.contains("content")) {
    if (!message.contains("tool_calls") && message["role"] != "assistant")
      return invalid("messages", place(index) + " has no \"content\"");
    message["content"] = "";
  }
  if (auto error = flatten_content(message, index)) return error;
  // Clients send null beside calls; templates print it as "None", or join it to other text and
  // fail.
  if (message["content"].is_null()) message["content"] = "";
  return normalize_history(message, place(index));
}

std::optional<Error> finish_conversation(CallDraft& draft, OrderedJson messages) {
  text::Conversation& conversation = draft.conversation;
  conversation.messages = std::move(messages);
  conversation.add_generation_prompt =
      draft.add_generation_prompt.value_or(!conversation.continue_final_message);
  if (auto error = service::apply_tool_choice(draft.tool_choice, conversation, draft.call.request))
    return error;
  if (!draft.documents.is_null()) conversation.kwargs["documents"] = std::move(draft.documents);
  if (!draft.reasoning_effort.empty() && !conversation.kwargs.contains("reasoning_effort"))
    conversation.kwargs["reasoning_effort"] = draft.reasoning_effort;
  if (!draft.thinking && !draft.reasoning_effort.empty())
    draft.thinking = service::thinking_of_effort(draft.reasoning_effort);
  service::set_thinking(conversation.kwargs, draft.thinking);
  draft.call.prompts.emplace_back(std::move(conversation));
  return std::nullopt;
}

std::optional<Error> take_token_ids(CallDraft& draft, const char* input) {
  for (auto& ids : draft.prompt_token_ids) {
    if (ids.empty()) return invalid("prompt_token_ids", "prompt_token_ids has an empty list");
    draft.call.prompts.emplace_back(std::move(ids));
  }
  if (draft.call.prompts.size() * static_cast<size_t>(draft.call.best_of) > kMaxPrompts)
    return invalid(input, fmt::format("there are {} prompts; times n (or best_of) that is more "
                                      "than {}",
                                      draft.call.prompts.size(), kMaxPrompts));
  return std::nullopt;
}

// A prompt that is given as it is shows no tools, and nothing would make the reply a call of one.
std::optional<Error> refuse_forced_call(const service::ToolChoice& choice) {
  if (choice.mode != service::ToolChoice::Mode::kRequired) return std::nullopt;
  return Error{Code::kUnsupported,
               "tool_choice cannot ask for a call where the prompt is token ids or raw text; send "
               "messages for the chat template, or leave it out",
               "tool_choice"};
}

// A schema is read further where it is followed; templates and readers look at its members.
MaybeProblem check_parameters(const OrderedJson& function) {
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || parameters->is_null()) return std::nullopt;
  if (!parameters->is_object())
    return Problem{"must have a JSON schema, which is an object, as \"parameters\", but has " +
                   described(*parameters)};
  const auto properties = parameters->find("properties");
  if (properties == parameters->end() || properties->is_object()) return std::nullopt;
  return Problem{"must have an object as \"properties\" of \"parameters\", but has " +
                 described(*properties)};
}

}  // namespace

MaybeProblem read_tools(const OrderedJson& value, text::Conversation& conversation) {
  if (!value.is_array()) return Problem{"must be a list, but is " + described(value)};
  if (value.size() > kMaxTools)
    return Problem{fmt::format("has {} entries, at most {} are allowed", value.size(), kMaxTools)};
  for (const OrderedJson& tool : value) {
    const auto function = tool.is_object() ? tool.find("function") : tool.end();
    if (!tool.is_object() || function == tool.end() || !function->is_object() ||
        !function->contains("name") || !function->at("name").is_string())
      return Problem{
          "must be a list of {\"type\": \"function\", \"function\": {\"name\": ...}}, but holds " +
          described(tool)};
    if (const size_t bytes = function->at("name").get_ref<const std::string&>().size();
        bytes > kMaxToolName)
      return Problem{fmt::format("has a function whose name has {} bytes, at most {} are allowed",
                                 bytes, kMaxToolName)};
    const auto strict = function->find("strict");
    if (strict != function->end() && !strict->is_boolean() && !strict->is_null())
      return Problem{"must have true or false as \"strict\", but has " + described(*strict)};
    if (auto problem = check_parameters(*function)) return problem;
  }
  if (!value.empty()) conversation.tools = value;
  return std::nullopt;
}

MaybeProblem read_template_kwargs(const OrderedJson& value, text::Conversation& conversation) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  if (value.size() > kMaxKwargs)
    return Problem{fmt::format("has {} entries, at most {} are allowed", value.size(), kMaxKwargs)};
  if (const auto reserved = text::find_reserved_variable(value))
    return Problem{fmt::format("must not set \"{}\"", *reserved)};
  conversation.kwargs = value;
  return std::nullopt;
}

MaybeProblem read_prompt_token_ids(const OrderedJson& value, CallDraft& draft) {
  draft.prompt_token_ids.clear();
  const bool lists = value.is_array() && !value.empty() && value.front().is_array();
  if (value.is_array() && value.empty()) return std::nullopt;  // an empty list counts as absent
  for (const OrderedJson& one : lists ? value : OrderedJson::array({value})) {
    auto& ids = draft.prompt_token_ids.emplace_back();
    if (auto problem = read_token_ids(one, ids)) return problem;
  }
  return std::nullopt;
}

Result<OrderedJson> read_message_list(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty())
    return invalid("messages", "messages must be a list with at least one message");
  if (messages.size() > kMaxMessages)
    return invalid("messages", fmt::format("messages has {} entries, at most {} are allowed",
                                           messages.size(), kMaxMessages));
  OrderedJson checked = messages;
  for (size_t i = 0; i < checked.size(); ++i)
    if (auto error = check_message(checked[i], i)) return *error;
  return checked;
}

std::optional<Error> check_continuation(const text::Conversation& conversation,
                                        std::optional<bool> add_generation_prompt) {
  const char* field = "continue_final_message";
  if (!conversation.continue_final_message) return std::nullopt;
  if (add_generation_prompt.value_or(false))
    return invalid(field,
                   "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  const OrderedJson& last = conversation.messages.back();
  if (last.at("role") != "assistant" || last.at("content").get_ref<const std::string&>().empty())
    return invalid(field,
                   "continue_final_message needs a last message of role \"assistant\" with text");
  return std::nullopt;
}

std::optional<Error> read_messages(const OrderedJson& body, CallDraft& draft) {
  auto forced = refuse_forced_call(draft.tool_choice);
  if (!draft.prompt_token_ids.empty()) {
    if (forced) return forced;
    if (draft.prompt_token_ids.size() > 1)
      return invalid("prompt_token_ids", "prompt_token_ids of a chat is one list of token ids");
    return take_token_ids(draft, "prompt_token_ids");
  }
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) return missing("messages");
  if (messages->is_array() && !messages->empty() && messages->front().is_number()) {
    if (forced) return forced;
    std::vector<Token> tokens;
    if (auto problem = read_token_ids(*messages, tokens))
      return invalid("messages", "messages " + problem->what);
    draft.call.prompts.emplace_back(std::move(tokens));
    return std::nullopt;
  }
  auto checked = read_message_list(*messages);
  if (!checked) return checked.error();
  if (draft.raw_chat) {
    if (forced) return forced;
    const OrderedJson& content = checked->front()["content"];
    draft.call.prompts.emplace_back(content.is_string() ? content.get<std::string>()
                                                        : std::string());
    return std::nullopt;
  }
  if (auto error = finish_conversation(draft, std::move(*checked))) return error;
  const text::Conversation& conversation = std::get<text::Conversation>(draft.call.prompts.back());
  return check_continuation(conversation, draft.add_generation_prompt);
}

std::optional<Error> read_prompt(const OrderedJson& body, CallDraft& draft) {
  if (!draft.prompt_token_ids.empty()) return take_token_ids(draft, "prompt_token_ids");
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || prompt->is_null()) return missing("prompt");
  if (prompt->is_string()) {
    draft.call.prompts.emplace_back(prompt->get<std::string>());
    return std::nullopt;
  }
  if (!prompt->is_array() || prompt->empty())
    return invalid("prompt",
                   "prompt must be a string, a list of strings, a list of token ids, or a list of "
                   "such lists, and not empty, but is " +
                       described(*prompt));
  if (prompt->front().is_number()) {
    std::vector<Token> tokens;
    if (auto problem = read_token_ids(*prompt, tokens))
      return invalid("prompt", "prompt " + problem->what);
    draft.call.prompts.emplace_back(std::move(tokens));
    return std::nullopt;
  }
  if (prompt->size() * static_cast<size_t>(draft.call.best_of) > kMaxPrompts)
    return invalid("prompt",
                   fmt::format("prompt has {} entries; times n (or best_of) that is more than {}",
                               prompt->size(), kMaxPrompts));
  for (const OrderedJson& one : *prompt) {
    if (one.is_string()) {
      draft.call.prompts.emplace_back(one.get<std::string>());
      continue;
    }
    std::vector<Token> tokens;
    if (auto problem = read_token_ids(one, tokens))
      return invalid("prompt", "each entry of prompt that is no string " + problem->what);
    draft.call.prompts.emplace_back(std::move(tokens));
  }
  return std::nullopt;
}

}  // namespace skiff::openai
