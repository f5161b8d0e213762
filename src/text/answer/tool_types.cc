#include "text/answer/tool_types.h"

#include <algorithm>

#include "base/json_text.h"

namespace skiff::answer {
namespace {

using Kind = ArgumentType::Kind;

Kind kind_named(std::string_view name) {
  constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"string", Kind::kString},   {"integer", Kind::kInteger}, {"number", Kind::kNumber},
      {"boolean", Kind::kBoolean}, {"object", Kind::kObject},   {"array", Kind::kArray},
      {"null", Kind::kNull}};
  for (const auto& [known, kind] : kKinds)
    if (known == name) return kind;
  return Kind::kAny;
}

// Of several types a string is the weakest promise, so that it decides only if nothing else does.
void add_type(const OrderedJson& type, ArgumentType& out) {
  if (!type.is_string()) return;
  const Kind kind = kind_named(type.get_ref<const std::string&>());
  if (kind == Kind::kNull)
    out.nullable = true;
  else
    out.kind = out.kind == Kind::kAny ? kind : Kind::kAny;
}

ArgumentType type_of(const OrderedJson& schema) {
  ArgumentType out;
  if (!schema.is_object()) return out;
  const auto type = schema.find("type");
  if (type == schema.end()) return out;
  if (type->is_array())
    for (const OrderedJson& one : *type) add_type(one, out);
  else
    add_type(*type, out);
  const auto nullable = schema.find("nullable");
  out.nullable = out.nullable || (nullable != schema.end() && *nullable == true);
  return out;
}

bool fits(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::kInteger:
    case Kind::kNumber:
      return value.is_number();
    case Kind::kBoolean:
      return value.is_boolean();
    case Kind::kObject:
      return value.is_object();
    case Kind::kArray:
      return value.is_array();
    default:
      return true;
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool says_null(std::string_view text) {
  constexpr std::string_view kNull = "null";
  return std::ranges::equal(text, kNull, [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

ToolTypes::ToolTypes(const OrderedJson& tools) {
  if (!tools.is_array()) return;
  for (const OrderedJson& tool : tools) {
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) continue;
    const auto name = function->find("name");
    const auto parameters = function->find("parameters");
    if (name == function->end() || !name->is_string() || parameters == function->end()) continue;
    if (!parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    auto& types = functions_[name->get<std::string>()];
    for (const auto& [key, schema] : properties->items()) types[key] = type_of(schema);
  }
}

ArgumentType ToolTypes::find(const std::string& function, const std::string& argument) const {
  const auto types = functions_.find(function);
  if (types == functions_.end()) return {};
  const auto type = types->second.find(argument);
  return type == types->second.end() ? ArgumentType{} : type->second;
}

std::string typed_json(std::string_view text, const ArgumentType& type) {
  const std::string_view bare = trimmed(text);
  if (says_null(bare) && (type.nullable || type.kind == Kind::kAny)) return "null";
  if (type.kind != Kind::kString)
    if (const auto value = parse_json(bare); value && fits(*value, type.kind))
      return std::string(bare);
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace skiff::answer
