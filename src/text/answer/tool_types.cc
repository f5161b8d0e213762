#include "text/answer/tool_types.h"

#include <algorithm>

#include "base/json_text.h"
#include "text/answer/json_scanner.h"
#include "text/answer/python_literal.h"

namespace skiff::answer {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool says_null(std::string_view text) {
  constexpr std::string_view kNull = "null";
  return text == "None" ||
         std::ranges::equal(text, kNull, [](char a, char b) { return (a | 0x20) == b; });
}

// The type of a JSON text, which its first byte tells.
JsonTypes type_of_text(std::string_view json) {
  switch (json.front()) {
    case '{':
      return kJsonObject;
    case '[':
      return kJsonArray;
    case '"':
      return kJsonString;
    case 'n':
      return kJsonNull;
    case 't':
    case 'f':
      return kJsonBoolean;
    default:
      return kJsonNumber;
  }
}

}  // namespace

ToolTypes::ToolTypes(const OrderedJson& tools) {
  if (!tools.is_array()) return;
  for (const OrderedJson& tool : tools) {
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) continue;
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string()) continue;
    auto& types = functions_[name->get<std::string>()];
    const auto parameters = function->find("parameters");
    if (parameters == function->end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    SchemaTypes found(*parameters);
    for (const auto& [key, schema] : properties->items()) types[key] = found.of(schema);
  }
}

JsonTypes ToolTypes::find(const std::string& function, const std::string& argument) const {
  return has(function, argument) ? functions_.at(function).at(argument) : kJsonAny;
}

bool ToolTypes::has(const std::string& function, const std::string& argument) const {
  const auto types = functions_.find(function);
  return types != functions_.end() && types->second.contains(argument);
}

std::string typed_json(std::string_view text, JsonTypes types) {
  const std::string_view bare = trimmed(text);
  const bool may_be_null = (types & kJsonNull) != 0 || (types & kJsonString) == 0;
  if (may_be_null && says_null(bare)) return "null";
  if (!only_text(types)) {
    if (is_json_value(bare) && (types & type_of_text(bare)) != 0) return std::string(bare);
    const auto json = python_to_json(bare);
    if (json && (types & ~kJsonString & type_of_text(*json)) != 0) return *json;
  }
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace skiff::answer
