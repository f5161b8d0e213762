#include "base/json.h"

#include "base/json_builder.h"
#include "base/regular_file.h"

namespace skiff {
namespace {

const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

template <class AnyJson>
Result<AnyJson> parse_guarded(std::string_view text, const JsonLimits& limits, size_t max_keys) {
  if (text.size() > limits.max_bytes)
    return Error{Code::kInvalid, fmt::format("JSON of {} bytes is larger than the limit of {}",
                                             text.size(), limits.max_bytes)};
  try {
    JsonBuilder<AnyJson> builder(limits.max_depth, max_keys);
    builder.allow_wide(limits.wide, limits.max_wide_keys);
    if (!AnyJson::sax_parse(text.begin(), text.end(), &builder))
      return Error{Code::kInvalid, fmt::format("not valid JSON: {}", builder.error())};
    return builder.take();
  } catch (const LoadError& e) {
    return Error{Code::kInvalid, fmt::format("JSON refused: {}", e.what())};
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  return parse_guarded<Json>(text, limits, text.size());
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return parse_guarded<OrderedJson>(text, limits, limits.max_keys);
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  auto parsed = parse_json(read_regular_file(path, limits.max_bytes), limits);
  if (!parsed) fail_load("{}: {}", path, parsed.error().what);
  return std::move(*parsed);
}

Fields::Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) fail_load("{}: expected a JSON object", where_);
}

const Json* Fields::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

bool Fields::has(std::string_view key) const { return find(key) != nullptr; }

Fields Fields::child(std::string_view key) const {
  const Json* value = find(key);
  return Fields(value ? *value : empty_object(), fmt::format("{}: {}", where_, key));
}

}  // namespace skiff
