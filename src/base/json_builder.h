// base/json_builder.h -- makes a JSON value of a parser's events (the SAX interface of nlohmann's
// library), under limits on depth and keys.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace skiff {

// Throws LoadError at the first duplicate key or broken limit, before memory is spent on it. For
// AnyJson::sax_parse, or for a handler that passes some events on. One value each.
template <class AnyJson>
class JsonBuilder {
 public:
  JsonBuilder(int max_depth, size_t max_keys) : max_depth_(max_depth), max_keys_(max_keys) {}

  AnyJson take() { return std::move(root_); }
  // What is wrong with the text; empty: nothing.
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
    auto& object = open_.back()->template get_ref<typename AnyJson::object_t&>();
    const auto [place, fresh] = object.emplace(name, nullptr);
    if (!fresh) throw LoadError("duplicate key \"" + name + "\"");
    if (object.size() > max_keys_) throw LoadError("an object with too many keys");
    member_ = &place->second;
    return true;
  }

  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception& e) {
    error_ = e.what();
    return false;
  }

 private:
  template <class T>
  AnyJson* put(T&& v) {
    if (open_.empty()) return &(root_ = std::forward<T>(v));
    if (open_.back()->is_object()) return &(*member_ = std::forward<T>(v));
    auto& array = open_.back()->template get_ref<typename AnyJson::array_t&>();
    return &array.emplace_back(std::forward<T>(v));
  }
  template <class T>
  bool value(T&& v) {
    put(std::forward<T>(v));
    return true;
  }
  bool open(AnyJson&& container) {
    if (open_.size() >= static_cast<size_t>(max_depth_))
      throw LoadError("nested deeper than allowed");
    open_.push_back(put(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  size_t max_keys_;
  AnyJson root_;
  std::vector<AnyJson*> open_;  // containers from the root; only the last one grows
  AnyJson* member_ = nullptr;   // the value of the key that came last
  std::string error_;
};

}  // namespace skiff
