#include "serve/ollama/to_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "serve/openai/values.h"
#include "serve/turn/items.h"

namespace skiff::ollama {
namespace {

using openai::described;
using turn::invalid, turn::member, turn::unsupported;

bool is_empty_text(const OrderedJson& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

std::optional<Error> refuse_images(const OrderedJson& holder, const std::string& place) {
  const OrderedJson* images = member(holder, "images");
  if (!images || images->empty()) return std::nullopt;
  return unsupported("images", place + " has images, which are not supported");
}

// The messages of a chat. Ollama's calls have no ids, so results of tools are matched with them by
// name and order, and get ids here.
class History {
 public:
  std::optional<Error> add(const OrderedJson& message, const std::string& place) {
    const OrderedJson *role = member(message, "role"), *content = member(message, "content");
    if (!role || !role->is_string()) return invalid("messages", place + " has no role");
    if (content && !content->is_string())
      return invalid("messages", fmt::format("{}.content must be a string, but is {}", place,
                                             described(*content)));
    if (auto error = refuse_images(message, place)) return error;
    OrderedJson out = {{"role", *role}, {"content", content ? *content : OrderedJson("")}};
    if (const OrderedJson* thoughts = member(message, "thinking"))
      out["reasoning_content"] = *thoughts;
    if (const OrderedJson* calls = member(message, "tool_calls")) {
      auto listed = list(*calls, place);
      if (!listed) return listed.error();
      if (!listed->empty()) out["tool_calls"] = std::move(*listed);
    }
    if (*role == "tool") match(message, out);
    chat_.push_back(std::move(out));
    return std::nullopt;
  }

  void add_text(const char* role, const OrderedJson& text) {
    chat_.push_back({{"role", role}, {"content", text}});
  }
  OrderedJson take() { return std::move(chat_); }

 private:
  struct Open {
    std::string id, name;
  };

  Result<OrderedJson> list(const OrderedJson& calls, const std::string& place) {
    if (!calls.is_array())
      return invalid("messages", place + ".tool_calls must be a list, but is " + described(calls));
    if (calls.size() > turn::kMaxCalls) return turn::too_many_calls(place);
    OrderedJson out = OrderedJson::array();
    open_.clear();
    for (const OrderedJson& call : calls) {
      const OrderedJson* function = member(call, "function");
      const OrderedJson* name = function ? member(*function, "name") : nullptr;
      if (!name || !name->is_string())
        return invalid("messages", place + ".tool_calls has a call without function.name");
      const OrderedJson* arguments = member(*function, "arguments");
      const OrderedJson* given = member(call, "id");
      open_.push_back({given && given->is_string() ? given->get<std::string>()
                                                   : fmt::format("call_{}", calls_++),
                       name->get<std::string>()});
      out.push_back(
          {{"id", open_.back().id},
           {"type", "function"},
           {"function",
            {{"name", *name}, {"arguments", arguments ? *arguments : OrderedJson::object()}}}});
    }
    return out;
  }

  // The first call without a result that has this name, else the first without a result.
  void match(const OrderedJson& message, OrderedJson& out) {
    const OrderedJson* name = member(message, "tool_name");
    if (!name) name = member(message, "name");
    if (name && name->is_string()) out["name"] = *name;
    if (const OrderedJson* id = member(message, "tool_call_id")) {
      out["tool_call_id"] = *id;
      return;
    }
    if (open_.empty()) return;
    auto found =
        std::ranges::find_if(open_, [&](const Open& open) { return name && *name == open.name; });
    if (found == open_.end()) found = open_.begin();
    out["tool_call_id"] = found->id;
    open_.erase(found);
  }

  OrderedJson chat_ = OrderedJson::array();
  std::vector<Open> open_;  // calls of the latest message with calls that have no result yet
  int calls_ = 0;
};

struct Option {
  std::string_view name, field;
};

// Options that a chat has under another name, or the same.
constexpr Option kSampling[] = {{"temperature", "temperature"},
                                {"top_p", "top_p"},
                                {"top_k", "top_k"},
                                {"min_p", "min_p"},
                                {"stop", "stop"},
                                {"repeat_penalty", "repetition_penalty"},
                                {"presence_penalty", "presence_penalty"},
                                {"frequency_penalty", "frequency_penalty"}};

// What the server decides at its start, and what changes no token. They have no effect.
constexpr std::string_view kServerOptions[] = {
    "num_ctx",    "num_batch",     "num_gpu",          "main_gpu",
    "num_thread", "num_keep",      "low_vram",         "use_mmap",
    "use_mlock",  "numa",          "f16_kv",           "vocab_only",
    "logits_all", "repeat_last_n", "penalize_newline", "draft_num_predict"};

// Ways of sampling that this server does not have, and the value that switches each off.
struct Absent {
  std::string_view name;
  double off;
};
constexpr Absent kAbsent[] = {{"mirostat", 0}, {"tfs_z", 1}, {"typical_p", 1}};
constexpr std::string_view kOfAbsent[] = {"mirostat_tau", "mirostat_eta"};

template <class List>
bool lists(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

std::optional<Error> set_option(std::string_view name, const OrderedJson& value,
                                OrderedJson& chat) {
  if (value.is_null() || lists(kServerOptions, name) || lists(kOfAbsent, name)) return std::nullopt;
  for (const Option& option : kSampling)
    if (option.name == name) {
      chat[std::string(option.field)] = value;
      return std::nullopt;
    }
  const auto number = [&] { return value.is_number() ? value.get<double>() : 1; };
  if (name == "num_predict") {  // 0, -1 and -2: as many as fit
    if (number() > 0) chat["max_tokens"] = value;
    return std::nullopt;
  }
  if (name == "seed") {
    if (number() >= 0) chat["seed"] = value;
    return std::nullopt;
  }
  for (const Absent& absent : kAbsent) {
    if (absent.name != name) continue;
    if (value.is_number() && value.get<double>() == absent.off) return std::nullopt;
    return unsupported("options", fmt::format("options.{} is not supported", name));
  }
  chat[std::string(name)] = value;  // a field of Skiff's own, or unknown
  return std::nullopt;
}

std::optional<Error> set_format(const OrderedJson& format, OrderedJson& chat) {
  if (format.is_string() && format.get_ref<const std::string&>().empty()) return std::nullopt;
  if (format == "json")
    chat["response_format"] = {{"type", "json_object"}};
  else if (format.is_object())
    chat["response_format"] = {{"type", "json_schema"},
                               {"json_schema", {{"name", "format"}, {"schema", format}}}};
  else
    return invalid("format",
                   "format must be \"json\" or a JSON Schema, but is " + described(format));
  return std::nullopt;
}

std::optional<Error> set_think(const OrderedJson& think, OrderedJson& chat) {
  if (think.is_boolean())
    chat["enable_thinking"] = think;
  else if (think.is_string())
    chat["reasoning_effort"] = think;
  else
    return invalid("think", "think must be true, false or a level, but is " + described(think));
  return std::nullopt;
}

std::optional<Error> add_messages(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson* messages = member(body, "messages");
  if (!messages) return Error{Code::kNotFound, "messages is required", "messages"};
  if (!messages->is_array())
    return invalid("messages", "messages must be a list, but is " + described(*messages));
  History history;
  for (size_t i = 0; i < messages->size(); ++i)
    if (auto error = history.add((*messages)[i], fmt::format("messages[{}]", i))) return error;
  chat["messages"] = history.take();
  return std::nullopt;
}

// Ollama's own client writes each field of a generation, also those that its user left empty.
bool says_nothing(const OrderedJson& value) {
  return value.is_string() ? value.get_ref<const std::string&>().empty()
                           : value.is_array() && value.empty();
}

std::optional<Error> add_prompt(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson *prompt = member(body, "prompt"), *system = member(body, "system");
  if (!prompt) return Error{Code::kNotFound, "prompt is required", "prompt"};
  for (const auto& [name, value] : {std::pair{"prompt", prompt}, std::pair{"system", system}})
    if (value && !value->is_string())
      return invalid(name, fmt::format("{} must be a string, but is {}", name, described(*value)));
  if (auto error = refuse_images(body, "the request")) return error;
  for (const char* field : {"suffix", "context"})
    if (const OrderedJson* value = member(body, field); value && !says_nothing(*value))
      return unsupported(field, fmt::format("{} is not supported", field));
  History history;
  const OrderedJson* raw = member(body, "raw");
  if (raw && !raw->is_boolean())
    return invalid("raw", "raw must be true or false, but is " + described(*raw));
  const bool is_raw = raw && *raw == true;
  if (is_raw) chat["disable_chat_template"] = true;
  if (system && !is_raw && !system->get_ref<const std::string&>().empty())
    history.add_text("system", *system);
  history.add_text("user", *prompt);
  chat["messages"] = history.take();
  return std::nullopt;
}

// Fields that become another one, or none; all others go along.
constexpr std::string_view kOwn[] = {"model",  "messages", "prompt",   "system",     "suffix",
                                     "images", "context",  "raw",      "format",     "options",
                                     "think",  "stream",   "template", "keep_alive", "tools"};

}  // namespace

std::string model_name(const OrderedJson& body) {
  constexpr std::string_view kTag = ":latest";
  const OrderedJson* given = member(body, "model");
  if (!given) given = member(body, "name");
  if (!given || !given->is_string()) return {};
  std::string name = given->get<std::string>();
  if (name.ends_with(kTag)) name.resize(name.size() - kTag.size());
  return name;
}

std::optional<Error> check_model_name(const OrderedJson& body) {
  for (const char* field : {"model", "name"})
    if (const OrderedJson* name = member(body, field); name && !name->is_string())
      return invalid(field, fmt::format("{} must be a string, but is {}", field, described(*name)));
  return std::nullopt;
}

bool only_loads(const OrderedJson& body, Endpoint endpoint) {
  const OrderedJson* input = member(body, endpoint == Endpoint::kChat ? "messages" : "prompt");
  if (!input) return true;
  return endpoint == Endpoint::kChat ? input->is_array() && input->empty() : is_empty_text(*input);
}

Result<OrderedJson> to_chat(const OrderedJson& body, Endpoint endpoint) {
  if (auto wrong = check_model_name(body)) return *wrong;
  OrderedJson chat = OrderedJson::object();
  for (const auto& [name, value] : body.items())
    if (!lists(kOwn, name)) chat[name] = value;
  if (member(body, "model")) chat["model"] = model_name(body);
  const OrderedJson* stream = member(body, "stream");
  chat["stream"] = stream ? *stream : OrderedJson(true);
  auto error = endpoint == Endpoint::kChat ? add_messages(body, chat) : add_prompt(body, chat);
  if (error) return *error;
  turn::continue_last_message(chat);
  if (const OrderedJson* tools = member(body, "tools"); tools && !tools->empty())
    chat["tools"] = *tools;
  if (const OrderedJson* text = member(body, "template"); text && !is_empty_text(*text))
    chat["chat_template"] = *text;
  if (const OrderedJson* format = member(body, "format"))
    if (auto wrong = set_format(*format, chat)) return *wrong;
  if (const OrderedJson* think = member(body, "think"))
    if (auto wrong = set_think(*think, chat)) return *wrong;
  if (const OrderedJson* options = member(body, "options")) {
    if (!options->is_object())
      return invalid("options", "options must be an object, but is " + described(*options));
    for (const auto& [name, value] : options->items())
      if (auto wrong = set_option(name, value, chat)) return *wrong;
  }
  return chat;
}

}  // namespace skiff::ollama
