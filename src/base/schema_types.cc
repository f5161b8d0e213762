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

class TypeFinder {
 public:
  explicit TypeFinder(const OrderedJson& root) : root_(root) {}

  JsonTypes types(const OrderedJson& schema, int depth) {
    if (schema == false) return 0;
    if (!schema.is_object() || depth == kMaxDepth || --steps_ < 0) return kJsonAny;
    JsonTypes out = kJsonAny;
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "type") out &= named(value, schema);
      if (keyword == "const") out &= type_of(value);
      if (keyword == "enum" && value.is_array()) out &= of_values(value);
      if ((keyword == "anyOf" || keyword == "oneOf") && value.is_array())
        out &= any_of(value, depth);
      if (keyword == "allOf" && value.is_array())
        for (const OrderedJson& one : value) out &= types(one, depth + 1);
      if (keyword == "$ref" && value.is_string())
        if (const OrderedJson* target = find(value.get<std::string>()))
          out &= types(*target, depth + 1);
    }
    return out;
  }

 private:
  static constexpr int kMaxDepth = 32, kMaxSteps = 4096;

  static JsonTypes named(const OrderedJson& type, const OrderedJson& schema) {
    JsonTypes out = type.is_array() ? 0 : type_named(type);
    if (type.is_array())
      for (const OrderedJson& one : type) out |= type_named(one);
    const auto nullable = schema.find("nullable");
    return nullable != schema.end() && *nullable == true ? out | kJsonNull : out;
  }

  static JsonTypes of_values(const OrderedJson& values) {
    JsonTypes out = 0;
    for (const OrderedJson& value : values) out |= type_of(value);
    return out;
  }

  JsonTypes any_of(const OrderedJson& branches, int depth) {
    JsonTypes out = 0;
    for (const OrderedJson& one : branches) out |= types(one, depth + 1);
    return out;
  }

  // Only references within the schema lead anywhere.
  const OrderedJson* find(const std::string& reference) const {
    if (!reference.starts_with('#')) return nullptr;
    try {
      const OrderedJson::json_pointer place(reference.substr(1));
      return root_.contains(place) ? &root_.at(place) : nullptr;
    } catch (const OrderedJson::exception&) {
      return nullptr;
    }
  }

  const OrderedJson& root_;
  int steps_ = kMaxSteps;
};

}  // namespace

JsonTypes allowed_types(const OrderedJson& schema, const OrderedJson& root) {
  return TypeFinder(root).types(schema, 0);
}

}  // namespace skiff
