#include "base/schema_types.h"

namespace skiff {
namespace {

JsonTypes type_named(const OrderedJson& name) {
  if (name == "null") return kJsonNull;
  if (name == "boolean") return kJsonBoolean;
  if (name == "number" || name == "integer") return kJsonNumber;
  if (name == "string") return kJsonString;
  if (name == "array") return kJsonArray;
  return name == "object" ? kJsonObject : kJsonAny;
}

JsonTypes type_of(const OrderedJson& value) {
  if (value.is_null()) return kJsonNull;
  if (value.is_boolean()) return kJsonBoolean;
  if (value.is_number()) return kJsonNumber;
  if (value.is_string()) return kJsonString;
  return value.is_array() ? kJsonArray : kJsonObject;
}

JsonTypes types_named(const OrderedJson& type) {
  if (!type.is_array()) return type_named(type);
  JsonTypes out = 0;
  for (const OrderedJson& one : type) out |= type_named(one);
  return out;
}

constexpr int kMaxDepth = 32;
// Each is looked up once, in time that grows with the members around its target.
constexpr size_t kMaxReferences = 256;

}  // namespace

bool SchemaTypes::spend(size_t steps) {
  left_ -= static_cast<int64_t>(steps);
  return left_ >= 0;
}

JsonTypes SchemaTypes::types(const OrderedJson& schema, int depth) {
  if (schema == false) return 0;
  if (!schema.is_object() || depth == kMaxDepth || !spend(1 + schema.size())) return kJsonAny;
  const auto nullable = schema.find("nullable");
  const bool or_null = nullable != schema.end() && *nullable == true;
  JsonTypes out = kJsonAny;
  for (const auto& [keyword, value] : schema.items()) {
    const JsonTypes here = by_keyword(keyword, value, depth);
    out &= or_null && keyword == "type" ? here | kJsonNull : here;
  }
  return out;
}

JsonTypes SchemaTypes::by_keyword(const std::string& keyword, const OrderedJson& value, int depth) {
  if (keyword == "type") return spend(value.size()) ? types_named(value) : kJsonAny;
  if (keyword == "const") return type_of(value);
  if (keyword == "enum" && value.is_array()) return of_values(value);
  if ((keyword == "anyOf" || keyword == "oneOf") && value.is_array()) return any_of(value, depth);
  JsonTypes out = kJsonAny;
  if (keyword == "allOf" && value.is_array() && spend(value.size()))
    for (const OrderedJson& one : value) out &= types(one, depth + 1);
  if (keyword == "$ref" && value.is_string())
    if (const OrderedJson* target = find(value.get_ref<const std::string&>()))
      out = types(*target, depth + 1);
  return out;
}

JsonTypes SchemaTypes::of_values(const OrderedJson& values) {
  if (!spend(values.size())) return kJsonAny;
  JsonTypes out = 0;
  for (const OrderedJson& value : values) out |= type_of(value);
  return out;
}

JsonTypes SchemaTypes::any_of(const OrderedJson& branches, int depth) {
  if (!spend(branches.size())) return kJsonAny;
  JsonTypes out = 0;
  for (const OrderedJson& one : branches) out |= types(one, depth + 1);
  return out;
}

// Only references within the schema lead anywhere.
const OrderedJson* SchemaTypes::find(const std::string& reference) {
  if (!reference.starts_with('#') || !spend(reference.size() / 16)) return nullptr;
  if (const auto known = found_.find(reference); known != found_.end()) return known->second;
  if (found_.size() == kMaxReferences) return nullptr;
  const OrderedJson*& target = found_[reference];
  try {
    const OrderedJson::json_pointer place(reference.substr(1));
    if (root_.contains(place)) target = &root_.at(place);
  } catch (const OrderedJson::exception&) {
    target = nullptr;
  }
  return target;
}

}  // namespace skiff
