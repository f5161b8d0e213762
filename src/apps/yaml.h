// apps/yaml.h -- a YAML text as a tree, read by libyaml.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace skiff::apps {

// What is not needed to write flags down is refused: anchors, aliases, tags, a second document,
// keys that are no texts, keys that come twice.
struct YamlNode {
  enum Kind : uint8_t { kScalar, kList, kObject } kind = kScalar;
  size_t line = 1;
  std::string text;               // what a scalar says
  bool plain = false;             // the scalar has no quotes, and may be a number
  std::vector<YamlNode> items;    // what a list has, or the values of an object
  std::vector<std::string> keys;  // those of an object, in the order of `items`

  bool is_null() const;
  // What a plain scalar says as a switch: true, yes, on, or their contraries.
  std::optional<bool> truth() const;
  // Plain scalars become null, truths and numbers where they can be read so, else texts.
  OrderedJson json() const;
};

constexpr size_t kMaxYamlBytes = 1u << 20;
constexpr int kMaxYamlDepth = 16;
constexpr size_t kMaxYamlKeys = 1024;  // that one object may have

// Throws UsageError that names `where` and the line. An empty text is an object without keys.
YamlNode read_yaml(std::string_view text, const std::string& where);

}  // namespace skiff::apps
