// text/answer/tool_types.h -- the types of the arguments of a request's tools, for notations that
// write all values as plain text.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace skiff::answer {

struct ArgumentType {
  enum class Kind { kAny, kString, kInteger, kNumber, kBoolean, kObject, kArray, kNull };
  Kind kind = Kind::kAny;
  bool nullable = false;
};

class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools` as OpenAI's API has them; what has no schema that says a type is kAny.
  explicit ToolTypes(const OrderedJson& tools);
  ArgumentType find(const std::string& function, const std::string& argument) const;

 private:
  std::map<std::string, std::map<std::string, ArgumentType>> functions_;
};

// The text of an argument as JSON, by its type: a string stays one, a number, boolean, object or
// array is taken as JSON if it is such, else as a string; "null" in any case is null where the type
// permits it or says nothing.
std::string typed_json(std::string_view text, const ArgumentType& type);

}  // namespace skiff::answer
