// text/answer/tool_types.h -- the types of the arguments of a request's tools, for notations that
// write all values as plain text.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/schema_types.h"

namespace skiff::answer {

class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools` as OpenAI's API has them.
  explicit ToolTypes(const OrderedJson& tools);
  // All types where no schema says.
  JsonTypes find(const std::string& function, const std::string& argument) const;
  // Returns whether there is such a function, and whether its schema names such an argument.
  bool has(const std::string& function) const { return functions_.contains(function); }
  bool has(const std::string& function, const std::string& argument) const;

 private:
  std::map<std::string, std::map<std::string, JsonTypes>> functions_;
};

// The text of an argument as JSON, by its types. A string stays as it is if nothing but null may
// stand in its place. Else JSON of one of the types is passed on byte for byte, and what Python
// writes for it (True, ['a']) is translated; the rest is a string. "null" in any case and "None"
// are null where the types permit it or permit no string.
std::string typed_json(std::string_view text, JsonTypes types);

}  // namespace skiff::answer
