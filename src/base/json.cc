#include "base/json.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

namespace skiff {
namespace {

// Refuses depth beyond the limit and duplicate keys while parsing, before memory is spent.
template <class AnyJson>
class Guard {
 public:
  Guard(int max_depth, size_t max_keys) : max_depth_(max_depth), max_keys_(max_keys) {}

  bool operator()(int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
    using Event = typename AnyJson::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth + 1 > max_depth_) throw LoadError("nested deeper than allowed");
      if (event == Event::object_start) keys_.emplace_back();
    } else if (event == Event::object_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.template get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) throw LoadError("duplicate key \"" + key + "\"");
      if (keys_.back().size() > max_keys_) throw LoadError("an object with too many keys");
    }
    return true;
  }

 private:
  int max_depth_;
  size_t max_keys_;
  std::vector<std::set<std::string>> keys_;
};

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
    Guard<AnyJson> guard(limits.max_depth, max_keys);
    return AnyJson::parse(text.begin(), text.end(),
                          [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
                            return guard(depth, event, parsed);
                          });
  } catch (const nlohmann::json::exception& e) {
    return Error{Code::kInvalid, fmt::format("not valid JSON: {}", e.what())};
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
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_load("{}: {}", path, std::strerror(errno));
  in.seekg(0, std::ios::end);
  const auto size = in.tellg();
  if (size < 0) fail_load("{}: not a readable file", path);
  if (static_cast<size_t>(size) > limits.max_bytes)
    fail_load("{}: {} bytes, larger than the limit of {}", path, static_cast<size_t>(size),
              limits.max_bytes);
  in.seekg(0);
  std::string text(static_cast<size_t>(size), '\0');
  in.read(text.data(), size);
  auto parsed = parse_json(text, limits);
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
