#include "base/json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <type_traits>
#include <vector>

namespace skiff {
namespace {

// Builds a value from the events of nlohmann's parser. Depth, keys and duplicates are judged before
// memory is spent, and a key is appended without the search that OrderedJson would make for it.
template <class AnyJson>
class Builder {
 public:
  explicit Builder(const JsonLimits& limits, bool keys_are_limited)
      : limits_(limits), keys_are_limited_(keys_are_limited) {}

  bool null() { return put(nullptr) != nullptr; }
  bool boolean(bool value) { return put(value) != nullptr; }
  bool number_integer(int64_t value) { return put(value) != nullptr; }
  bool number_unsigned(uint64_t value) { return put(value) != nullptr; }
  bool number_float(double value, const std::string&) { return put(value) != nullptr; }
  bool string(std::string& value) { return put(std::move(value)) != nullptr; }
  bool binary(std::vector<uint8_t>&) { return fail("binary data"); }
  bool start_array(size_t) { return open(AnyJson::array()); }
  bool start_object(size_t) { return open(AnyJson::object()); }
  bool end_array() { return close(); }
  bool end_object() { return close(); }

  bool key(std::string& name) {
    Open& object = open_.back();
    if (object.value->size() >= object.max_keys) return fail("an object with too many keys");
    if (!is_new(object, name)) return fail(fmt::format("duplicate key \"{}\"", shortened(name)));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    // The library's own number of the error stands in brackets before its words.
    const std::string what = error.what();
    const size_t bracket = what.find("] ");
    problem_ = "not valid JSON: " + shortened(what.substr(bracket == what.npos ? 0 : bracket + 2));
    return false;
  }

  AnyJson& result() { return root_; }
  const std::string& problem() const { return problem_; }

 private:
  static constexpr size_t kFewKeys = 16;  // searched one by one
  struct Open {
    AnyJson* value;
    size_t max_keys;
    std::set<std::string> keys;  // of an ordered object with more than kFewKeys
  };

  static std::string shortened(const std::string& text) {
    return text.size() <= 240 ? text : text.substr(0, 240) + "...";
  }
  bool fail(const std::string& what) {
    problem_ = "JSON refused: " + what;
    return false;
  }

  // Elements stay where they are while a container inside them is open.
  AnyJson* put(AnyJson value) {
    if (open_.empty()) return &(root_ = std::move(value));
    AnyJson& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& members = parent.template get_ref<typename AnyJson::object_t&>();
    if constexpr (std::is_same_v<AnyJson, OrderedJson>)
      return &members.emplace_back(std::move(key_), std::move(value)).second;
    else
      return &members.emplace(std::move(key_), std::move(value)).first->second;
  }

  bool open(AnyJson container) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth))
      return fail("nested deeper than allowed");
    const bool wide = open_.size() <= 2 && !limits_.wide.empty() && key_ == limits_.wide;
    const size_t most = keys_are_limited_ ? limits_.max_keys : limits_.max_bytes;
    AnyJson* value = put(std::move(container));
    open_.push_back({value, wide ? limits_.max_wide_keys : most, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  bool is_new(Open& object, const std::string& name) {
    auto& members = object.value->template get_ref<typename AnyJson::object_t&>();
    if constexpr (!std::is_same_v<AnyJson, OrderedJson>) return members.find(name) == members.end();
    if (members.size() < kFewKeys)
      return std::none_of(members.begin(), members.end(),
                          [&](const auto& member) { return member.first == name; });
    if (object.keys.empty())
      for (const auto& member : members) object.keys.insert(member.first);
    return object.keys.insert(name).second;
  }

  const JsonLimits& limits_;
  const bool keys_are_limited_;
  AnyJson root_;
  std::vector<Open> open_;
  std::string key_, problem_;
};

const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

template <class AnyJson>
Result<AnyJson> parse_guarded(std::string_view text, const JsonLimits& limits,
                              bool keys_are_limited) {
  if (text.size() > limits.max_bytes)
    return Error{Code::kInvalid, fmt::format("JSON of {} bytes is larger than the limit of {}",
                                             text.size(), limits.max_bytes)};
  Builder<AnyJson> builder(limits, keys_are_limited);
  if (!AnyJson::sax_parse(text.begin(), text.end(), &builder))
    return Error{Code::kInvalid, builder.problem()};
  return std::move(builder.result());
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  return parse_guarded<Json>(text, limits, false);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return parse_guarded<OrderedJson>(text, limits, true);
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
