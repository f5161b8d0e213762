#include "text/chat/history_form.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace skiff::text {
namespace {

constexpr std::string_view kKey = "probed_key", kValue = "probed_value";
constexpr std::string_view kText = R"({"probed_key": "probed_value"})";

// Far more than templates take for a few messages, and little enough for each start and request.
jinja::Limits probe_limits() {
  jinja::Limits limits;
  limits.steps = 200'000;
  limits.bytes = 8 << 20;
  limits.value = limits.output = 1 << 20;
  limits.time = std::chrono::milliseconds(100);
  return limits;
}

// Mistral's templates want ids of nine letters and digits.
OrderedJson probe_messages(const HistoryForm& form, jinja::Budget& budget) {
  OrderedJson messages = OrderedJson::parse(R"([
      {"role": "user", "content": "probe"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "probe0001", "type": "function",
       "function": {"name": "probe", "arguments": {"probed_key": "probed_value"}}}]},
      {"role": "tool", "tool_call_id": "probe0001", "name": "probe", "content": "probe"}])");
  auto formed = in_history_form(messages, form, budget);
  return formed && *formed ? std::move(**formed) : messages;
}

// Python's repr() of an object, which a template prints where it takes the arguments for text, has
// single quotes, and a text printed as JSON has quotes with backslashes.
bool shows_arguments(std::string_view prompt, const HistoryForm& form) {
  if (form.text_arguments) return prompt.find(kText) != std::string_view::npos;
  const auto holds = [&](std::string_view text) {
    return prompt.find(text) != std::string_view::npos;
  };
  return holds(kKey) && holds(kValue) && !holds(R"({'probed_key')") && !holds(R"({\"probed_key)");
}

bool is_blank(const OrderedJson& message) {
  const auto content = message.find("content");
  return content == message.end() || content->is_null() ||
         (content->is_string() && content->get_ref<const std::string&>().empty());
}

bool calls(const OrderedJson& message) {
  const auto found = message.is_object() ? message.find("tool_calls") : message.end();
  return message.is_object() && found != message.end() && found->is_array() && !found->empty();
}

// Writes a call's arguments as Python writes JSON, which is what models are trained on.
Status write_arguments(OrderedJson& call, jinja::Budget& budget) {
  const auto function = call.is_object() ? call.find("function") : call.end();
  if (!call.is_object() || function == call.end() || !function->is_object()) return ok();
  const auto arguments = function->find("arguments");
  if (arguments == function->end() || !arguments->is_object()) return ok();
  auto text = jinja::json_of(*arguments, budget);
  if (!text) return text.error();
  *arguments = std::move(*text);
  return ok();
}

}  // namespace

HistoryForm find_history_form(const jinja::Template& chosen, const OrderedJson& special,
                              const jinja::Clock& clock) {
  if (chosen.source().find("arguments") == std::string::npos) return {};
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "probe", "description": "probe",
           "parameters": {"type": "object", "properties": {}}}}])");
  const OrderedJson generates = true, documents = nullptr;
  for (const HistoryForm form : {HistoryForm{false, false}, HistoryForm{false, true},
                                 HistoryForm{true, false}, HistoryForm{true, true}}) {
    jinja::Budget budget(probe_limits());
    const OrderedJson messages = probe_messages(form, budget);
    std::vector<jinja::Template::Variable> variables;
    for (const auto& [name, value] : special.items()) variables.push_back({name, &value});
    variables.insert(variables.end(), {{"messages", &messages},
                                       {"tools", &tools},
                                       {"documents", &documents},
                                       {"add_generation_prompt", &generates}});
    const auto prompt = chosen.render(variables, clock, budget);
    if (prompt && shows_arguments(*prompt, form)) return form;
  }
  return {};
}

bool has_calls(const OrderedJson& messages) { return std::ranges::any_of(messages, calls); }

Result<std::optional<OrderedJson>> in_history_form(const OrderedJson& messages,
                                                   const HistoryForm& form, jinja::Budget& budget) {
  if (!form.text_arguments && !form.null_content) return std::optional<OrderedJson>();
  if (!has_calls(messages)) return std::optional<OrderedJson>();
  OrderedJson formed = messages;
  for (OrderedJson& message : formed) {
    if (!calls(message)) continue;
    if (form.null_content && is_blank(message)) message["content"] = nullptr;
    if (!form.text_arguments) continue;
    for (OrderedJson& call : message["tool_calls"])
      if (const Status written = write_arguments(call, budget); !written) return written.error();
  }
  return std::optional(std::move(formed));
}

}  // namespace skiff::text
