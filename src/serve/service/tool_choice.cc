#include "serve/service/tool_choice.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

namespace skiff::service {
namespace {

Error invalid(std::string what) { return {Code::kInvalid, std::move(what), "tool_choice"}; }

using Names = std::unordered_set<std::string_view>;

std::string_view name_of(const OrderedJson& tool) {
  return tool.at("function").at("name").get_ref<const std::string&>();
}

// Keeps the named tools, in their order. Names are looked up in sets, because a client decides how
// many there are and how long.
std::optional<Error> keep_only(const std::vector<std::string>& names, OrderedJson& tools) {
  Names there;
  for (const OrderedJson& tool : tools) there.insert(name_of(tool));
  for (const std::string& name : names)
    if (!there.contains(name))
      return invalid(fmt::format("tool_choice names the function \"{}\", which tools does not have",
                                 name.substr(0, 64)));
  const Names wanted(names.begin(), names.end());
  OrderedJson kept = OrderedJson::array();
  for (const OrderedJson& tool : tools)
    if (wanted.contains(name_of(tool))) kept.push_back(tool);
  tools = std::move(kept);
  return std::nullopt;
}

}  // namespace

std::optional<Error> apply_tool_choice(const ToolChoice& choice, text::Conversation& conversation,
                                       Request& request) {
  using enum ToolChoice::Mode;
  const bool any = conversation.tools.is_array() && !conversation.tools.empty();
  if (!any && (choice.mode == kRequired || !choice.only.empty()))
    return invalid("tool_choice asks for a tool call, but there are no tools");
  request.split_calls = any && choice.mode != kNone;
  if (choice.mode == kNone) conversation.tools = nullptr;
  if (!request.split_calls) return std::nullopt;
  if (!choice.only.empty())
    if (auto error = keep_only(choice.only, conversation.tools)) return error;
  request.must_call = choice.mode == kRequired;
  return std::nullopt;
}

}  // namespace skiff::service
