// Fields about tools and reasoning.
#include "serve/openai/fields.h"
#include "serve/openai/prompt.h"
#include "serve/service/thinking.h"

namespace skiff::openai {
namespace {

using Mode = service::ToolChoice::Mode;

constexpr const char* kKinds =
    "must be \"auto\", \"none\", \"required\", {\"type\": \"function\", \"function\": {\"name\": "
    "...}} or {\"type\": \"allowed_tools\", ...}";

// The most names, which is the most tools of a request: each name is looked for among all of them.
constexpr size_t kMaxAllowed = 1024;

std::optional<Mode> mode_named(const OrderedJson& value) {
  if (value == "auto") return Mode::kAuto;
  if (value == "none") return Mode::kNone;
  if (value == "required" || value == "any") return Mode::kRequired;
  return std::nullopt;
}

const OrderedJson* member(const OrderedJson& value, const char* name) {
  const auto found = value.is_object() ? value.find(name) : value.end();
  return value.is_object() && found != value.end() ? &*found : nullptr;
}

// {"type": "function", "function": {"name": ...}}, or with the name beside the type.
std::optional<std::string> function_name(const OrderedJson& value) {
  const OrderedJson* inner = member(value, "function");
  const OrderedJson* name = member(inner ? *inner : value, "name");
  if (!name || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

MaybeProblem read_allowed(const OrderedJson& value, service::ToolChoice& choice) {
  const OrderedJson* inner = member(value, "allowed_tools");
  const OrderedJson& allowed = inner ? *inner : value;
  const OrderedJson* tools = member(allowed, "tools");
  if (!tools || !tools->is_array() || tools->empty())
    return Problem{"of type allowed_tools must have a list \"tools\" that is not empty"};
  if (tools->size() > kMaxAllowed)
    return Problem{fmt::format("of type allowed_tools names {} tools, at most {} are allowed",
                               tools->size(), kMaxAllowed)};
  const OrderedJson* mode = member(allowed, "mode");
  if (mode && *mode != "auto" && *mode != "required")
    return Problem{"of type allowed_tools must have the mode \"auto\" or \"required\", but has " +
                   described(*mode)};
  choice.mode = mode && *mode == "required" ? Mode::kRequired : Mode::kAuto;
  for (const OrderedJson& tool : *tools) {
    auto name = function_name(tool);
    if (!name) return Problem{"of type allowed_tools has a tool without a name"};
    choice.only.push_back(std::move(*name));
  }
  return std::nullopt;
}

MaybeProblem read_reasoning_effort(const OrderedJson& value, CallDraft& draft) {
  if (!service::thinking_of_effort(value))
    return Problem{"must be one of none, minimal, low, medium, high, xhigh, max, but is " +
                   described(value)};
  draft.reasoning_effort = value.get<std::string>();
  return std::nullopt;
}

void set_budget(CallDraft& draft, int64_t tokens) {
  draft.call.request.reasoning_budget = static_cast<int>(tokens);
}

// FastDeploy's name, which knows no budget of zero tokens.
MaybeProblem read_reasoning_tokens(const OrderedJson& value, CallDraft& draft) {
  if (value == 0) return Problem{"must be -1 or at least 1, but is 0"};
  return integer_field(-1, kMaxTokens, set_budget)(value, draft);
}

// A switch, or Anthropic's {"type": "enabled", "budget_tokens": ...}.
MaybeProblem read_thinking(const OrderedJson& value, CallDraft& draft) {
  const OrderedJson *type = member(value, "type"), *budget = member(value, "budget_tokens");
  if (budget)
    if (auto problem = integer_field(-1, kMaxTokens, set_budget)(*budget, draft))
      return Problem{"has budget_tokens, which " + problem->what};
  if (value.is_boolean())
    draft.thinking = value.get<bool>();
  else if (type && (*type == "enabled" || *type == "adaptive"))
    draft.thinking = true;
  else if (type && *type == "disabled")
    draft.thinking = false;
  else
    return Problem{
        "must be true, false, or an object of type enabled, adaptive or disabled, but "
        "is " +
        described(value)};
  return std::nullopt;
}

}  // namespace

MaybeProblem read_tool_choice(const OrderedJson& value, service::ToolChoice& choice) {
  if (const auto mode = mode_named(value)) {
    choice.mode = *mode;
    return std::nullopt;
  }
  const OrderedJson* type = member(value, "type");
  if (type && *type == "allowed_tools") return read_allowed(value, choice);
  auto name = type && *type == "function" ? function_name(value) : std::nullopt;
  if (!name) return Problem{fmt::format("{}, but is {}", kKinds, described(value))};
  choice.mode = Mode::kRequired;
  choice.only = {std::move(*name)};
  return std::nullopt;
}

#define SET(target) [](CallDraft& draft, auto value) { (target) = std::move(value); }

std::vector<Field> tool_fields() {
  using enum Scope;
  return {
      {"tools", kChat,
       [](const OrderedJson& v, CallDraft& draft) { return read_tools(v, draft.conversation); }},
      {"tool_choice", kChat,
       [](const OrderedJson& v, CallDraft& draft) {
         return read_tool_choice(v, draft.tool_choice);
       }},
      {"parallel_tool_calls", kChat, boolean_field([](CallDraft& draft, bool parallel) {
         draft.call.request.one_call = !parallel;
       })},
      {"reasoning_effort", kChat, read_reasoning_effort},
      {"enable_thinking", kChat, boolean_field(SET(draft.thinking))},
      {"thinking", kChat, read_thinking},
      {"reasoning_max_tokens", kChat, read_reasoning_tokens},
      {"thinking_token_budget", kChat, integer_field(-1, kMaxTokens, set_budget)},
      {"include_reasoning", kChat, boolean_field(SET(draft.call.include_reasoning))},
      {"separate_reasoning", kChat, boolean_field(SET(draft.call.request.split_reasoning))},
  };
}
#undef SET

}  // namespace skiff::openai
