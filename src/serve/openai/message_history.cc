#include "serve/openai/message_history.h"

#include <fmt/format.h>

#include "serve/openai/values.h"

namespace skiff::openai {
namespace {

Error invalid(std::string what) { return {Code::kInvalid, std::move(what), "messages"}; }

std::optional<Error> parse_arguments(OrderedJson& function, const std::string& place) {
  const auto found = function.find("arguments");
  if (found == function.end() || found->is_null()) {
    function["arguments"] = OrderedJson::object();
    return std::nullopt;
  }
  if (found->is_string()) {
    const std::string& text = found->get_ref<const std::string&>();
    if (text.empty()) {
      *found = OrderedJson::object();
      return std::nullopt;
    }
    auto parsed = parse_ordered_json(text);
    if (!parsed)
      return invalid(
          fmt::format("{}.function.arguments is no JSON: {}", place, parsed.error().what));
    *found = std::move(*parsed);
  }
  if (found->is_object()) return std::nullopt;
  return invalid(fmt::format("{}.function.arguments must be a JSON object, but is {}", place,
                             described(*found)));
}

std::optional<Error> check_calls(OrderedJson& calls, const std::string& place) {
  if (calls.is_null()) return std::nullopt;
  if (!calls.is_array())
    return invalid(fmt::format("{}.tool_calls must be a list, but is {}", place, described(calls)));
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string where = fmt::format("{}.tool_calls[{}]", place, i);
    const auto function = calls[i].is_object() ? calls[i].find("function") : calls[i].end();
    if (!calls[i].is_object() || function == calls[i].end() || !function->is_object())
      return invalid(where + " must be an object with a \"function\"");
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string())
      return invalid(where + ".function has no \"name\"");
    if (auto error = parse_arguments(*function, where)) return error;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> normalize_history(OrderedJson& message, const std::string& place) {
  for (const char* name : {"reasoning", "thoughts"}) {
    const auto found = message.find(name);
    if (found == message.end() || !found->is_string() || message.contains("reasoning_content"))
      continue;
    std::string text = found->get<std::string>();
    message["reasoning_content"] = std::move(text);
  }
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return std::nullopt;
  if (calls->is_null() || calls->empty()) {
    message.erase("tool_calls");
    return std::nullopt;
  }
  return check_calls(*calls, place);
}

}  // namespace skiff::openai
