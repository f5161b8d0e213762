#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/json_builder.h"
#include "base/regular_file.h"

namespace skiff {
namespace {

const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

// Returns the UTF-16 unit whose escape (as in \ud83d) begins at `at`, or -1 if none does.
int escaped_unit(std::string_view text, size_t at) {
  const std::string_view escape = text.substr(std::min(at, text.size()), 6);
  if (escape.size() < 6 || !escape.starts_with("\\u")) return -1;
  int unit = 0;
  const auto [end, error] = std::from_chars(escape.data() + 2, escape.data() + 6, unit, 16);
  return error == std::errc() && end == escape.data() + 6 ? unit : -1;
}

bool is_high(int unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool is_low(int unit) { return unit >= 0xdc00 && unit < 0xe000; }

// Returns the text with each lone surrogate replaced by U+FFFD, or nullopt if it has none. The
// length stays the same, so that errors name the columns of the text that the client sent.
std::optional<std::string> without_lone_surrogates(std::string_view text) {
  std::optional<std::string> out;
  for (size_t at = text.find('\\'); at != text.npos; at = text.find('\\', at)) {
    const int unit = escaped_unit(text, at);
    if (is_high(unit) && is_low(escaped_unit(text, at + 6))) {
      at += 12;
    } else if (is_high(unit) || is_low(unit)) {
      if (!out) out.emplace(text);
      out->replace(at, 6, "\\ufffd");
      at += 6;
    } else {
      at += 2;
    }
  }
  return out;
}

template <class AnyJson>
Result<AnyJson> parse_guarded(std::string_view text, const JsonLimits& limits, size_t max_keys) {
  if (text.size() > limits.max_bytes)
    return Error{Code::kInvalid, fmt::format("JSON of {} bytes is larger than the limit of {}",
                                             text.size(), limits.max_bytes)};
  try {
    JsonBuilder<AnyJson> builder(limits.max_depth, max_keys);
    builder.allow_wide(limits.wide, limits.max_wide_keys);
    const auto mended = without_lone_surrogates(text);
    if (mended) text = *mended;
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
