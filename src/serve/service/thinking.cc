#include "serve/service/thinking.h"

namespace skiff::service {
namespace {

constexpr const char* kSwitches[] = {"enable_thinking", "thinking"};

}  // namespace

std::optional<bool> thinking_of(const OrderedJson& kwargs) {
  for (const char* name : kSwitches)
    if (const auto value = kwargs.find(name); value != kwargs.end() && value->is_boolean())
      return value->get<bool>();
  const auto options = kwargs.find("options");
  if (options == kwargs.end() || !options->is_object()) return std::nullopt;
  const auto mode = options->find("thinking_mode");
  if (mode == options->end()) return std::nullopt;
  if (*mode == "open") return true;
  if (*mode == "close") return false;
  return std::nullopt;
}

bool is_thinking_off_by_default(const text::ChatTemplate& chat_template) {
  text::Conversation probe;
  probe.messages = OrderedJson::array({{{"role", "user"}, {"content", "hello"}}});
  const auto rendered = [&](std::optional<bool> thinking) {
    text::Conversation one = probe;
    set_thinking(one.kwargs, thinking);
    return chat_template.render(one);
  };
  const auto silent = rendered(std::nullopt), off = rendered(false), on = rendered(true);
  return silent && off && on && *silent == *off && *silent != *on;
}

void set_thinking(OrderedJson& kwargs, std::optional<bool> wanted) {
  if (const auto said = thinking_of(kwargs)) wanted = said;
  if (!wanted) return;
  for (const char* name : kSwitches)
    if (!kwargs.contains(name)) kwargs[name] = *wanted;
  if (!kwargs.contains("options"))
    kwargs["options"] = {{"thinking_mode", *wanted ? "open" : "close"}};
}

std::optional<bool> thinking_of_effort(const OrderedJson& effort) {
  if (effort == "none") return false;
  for (const char* level : {"minimal", "low", "medium", "high", "xhigh", "max"})
    if (effort == level) return true;
  return std::nullopt;
}

}  // namespace skiff::service
