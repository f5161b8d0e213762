// base/json.h -- the JSON type of the project, bounded parsing of untrusted bytes, and typed
// access to configuration files with errors that name the key.
#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "base/load_error.h"
#include "base/result.h"

namespace skiff {

using Json = nlohmann::json;
// Keeps the order of keys; used for what a model will read (messages, tools). Lookup is linear.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  size_t max_bytes = 64u << 20;
  int max_depth = 64;
  // Bound on the keys of one object. Only parse_ordered_json checks it, because its lookup is
  // linear.
  size_t max_keys = 1024;
  // An object under this key may have up to max_wide_keys keys if it is a member of the outermost
  // object or of an object in that one. No code may look keys up in it.
  std::string_view wide = {};
  size_t max_wide_keys = 1u << 20;
};

// Strict UTF-8 JSON (RFC 8259; a byte order mark is skipped): duplicate keys and numbers beyond
// double are refused; the escape of a lone surrogate, as Python writes it, becomes U+FFFD; NUL may
// be escaped. O(n log n) time, and a stack of fixed size. Error::what says where and what.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});
Result<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits = {});

// Throws LoadError naming the path.
Json read_json_file(const std::string& path, const JsonLimits& limits = {});

// A read-only look at one JSON object of a configuration file. Missing or mistyped keys throw
// LoadError naming file and key. `null` counts as missing. Cheap to copy; borrows the Json.
class Fields {
 public:
  Fields(const Json& object, std::string where);

  bool has(std::string_view key) const;
  template <class T>
  T need(std::string_view key) const {
    const Json* value = find(key);
    if (!value) fail_load("{}: missing key \"{}\"", where_, key);
    return convert<T>(*value, key);
  }
  template <class T>
  T get(std::string_view key, T fallback) const {
    const Json* value = find(key);
    return value ? convert<T>(*value, key) : fallback;
  }
  // An empty object if the key is missing.
  Fields child(std::string_view key) const;
  const Json& json() const { return *object_; }
  const std::string& where() const { return where_; }

 private:
  const Json* find(std::string_view key) const;
  template <class T>
  T convert(const Json& value, std::string_view key) const {
    try {
      return value.get<T>();
    } catch (const nlohmann::json::exception&) {
      fail_load("{}: key \"{}\" has the wrong type: {}", where_, key, value.dump().substr(0, 80));
    }
  }
  const Json* object_;
  std::string where_;
};

}  // namespace skiff
