// base/json_builder.h -- builds a JSON value from a parser's events (the SAX interface of
// nlohmann's library), under limits on depth and keys.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_owner.h"

namespace skiff {

// The handler for AnyJson::sax_parse, or for another handler that forwards some of its events.
// Throws LoadError at the first duplicate key or exceeded limit, before memory is spent on it. A
// builder builds one value.
template <class AnyJson>
class JsonBuilder {
 public:
  JsonBuilder(int max_depth, size_t max_keys) : max_depth_(max_depth), max_keys_(max_keys) {}
  // JsonLimits::wide. `name` outlives the builder.
  void allow_wide(std::string_view name, size_t max_keys) {
    wide_ = name;
    max_wide_keys_ = max_keys;
  }

  AnyJson take() { return std::move(*root_); }
  // Describes what is wrong with the text; empty if nothing is.
  const std::string& error() const { return error_; }

  bool null() { return value(nullptr); }
  bool boolean(bool v) { return value(v); }
  bool number_integer(typename AnyJson::number_integer_t v) { return value(v); }
  bool number_unsigned(typename AnyJson::number_unsigned_t v) { return value(v); }
  bool number_float(typename AnyJson::number_float_t v, const std::string&) { return value(v); }
  bool string(std::string& v) { return value(std::move(v)); }
  bool binary(typename AnyJson::binary_t&) { return false; }
  bool start_object(size_t) { return open(AnyJson::object()); }
  bool start_array(size_t) { return open(AnyJson::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Open& top = open_.back();
    auto& object = top.value->template get_ref<typename AnyJson::object_t&>();
    if (object.size() >= top.max_keys) throw LoadError("an object with too many keys");
    if (is_known(top, object, name)) throw LoadError("duplicate key \"" + shortened(name) + "\"");
    wide_next_ = open_.size() <= 2 && !wide_.empty() && name == wide_;
    if constexpr (kOrdered) {
      if (object.size() == object.capacity()) grow(object);
      member_ = &object.emplace_back(std::move(name), nullptr).second;
    } else {
      member_ = &object.emplace(std::move(name), nullptr).first->second;
    }
    return true;
  }

  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception& e) {
    // nlohmann::json puts its error number in brackets before the message.
    const std::string what = e.what();
    const size_t bracket = what.find("] ");
    error_ = shortened(what.substr(bracket == what.npos ? 0 : bracket + 2));
    return false;
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<AnyJson, OrderedJson>;
  static constexpr size_t kFewKeys = 16;  // up to this many keys are searched linearly
  struct Open {
    AnyJson* value;
    size_t max_keys;
    std::set<std::string> keys = {};  // used for an ordered object with more than kFewKeys
  };

  static std::string shortened(const std::string& text) {
    return text.size() <= 240 ? text : text.substr(0, 240) + "...";
  }

  // An ordered object has constant keys, so that a vector would copy its members to grow.
  template <class Object>
  static void grow(Object& object) {
    Object larger;
    larger.reserve(std::max<size_t>(2, 2 * object.size()));
    for (const auto& member : object) larger.emplace_back(member.first, nullptr);
    auto to = larger.begin();
    for (auto& member : object) (to++)->second = std::move(member.second);
    object.swap(larger);
  }

  // Appends without the linear search that an ordered object would make for each key.
  template <class Object>
  static bool is_known(Open& top, const Object& object, const std::string& name) {
    if constexpr (!kOrdered) {
      return object.find(name) != object.end();
    } else {
      if (object.size() < kFewKeys)
        return std::any_of(object.begin(), object.end(),
                           [&](const auto& member) { return member.first == name; });
      if (top.keys.empty())
        for (const auto& member : object) top.keys.insert(member.first);
      return !top.keys.insert(name).second;
    }
  }

  template <class T>
  AnyJson* put(T&& v) {
    if (open_.empty()) return &(*root_ = std::forward<T>(v));
    if (open_.back().value->is_object()) return &(*member_ = std::forward<T>(v));
    auto& array = open_.back().value->template get_ref<typename AnyJson::array_t&>();
    return &array.emplace_back(std::forward<T>(v));
  }
  template <class T>
  bool value(T&& v) {
    wide_next_ = false;
    put(std::forward<T>(v));
    return true;
  }
  bool open(AnyJson&& container) {
    if (open_.size() >= static_cast<size_t>(max_depth_))
      throw LoadError("nested deeper than allowed");
    const size_t most = wide_next_ ? max_wide_keys_ : max_keys_;
    wide_next_ = false;
    open_.push_back({put(std::move(container)), most});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  size_t max_keys_;
  std::string_view wide_;
  size_t max_wide_keys_ = 0;
  bool wide_next_ = false;  // the last key equals wide_
  JsonOwner<AnyJson> root_;
  std::vector<Open> open_;     // containers from the root; only the last one grows
  AnyJson* member_ = nullptr;  // where the value of the last key goes
  std::string error_;
};

}  // namespace skiff
