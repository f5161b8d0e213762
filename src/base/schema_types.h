// base/schema_types.h -- which types of values a JSON schema allows, as far as it says so plainly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/json.h"

namespace skiff {

// A set of types of JSON values. Integers are numbers.
using JsonTypes = uint8_t;
constexpr JsonTypes kJsonNull = 1, kJsonBoolean = 2, kJsonNumber = 4, kJsonString = 8,
                    kJsonArray = 16, kJsonObject = 32, kJsonAny = 63;

// Finds the types that parts of one schema allow. Its work is bounded over all of them, since a
// client may refer to one large part from many places. Borrows the schema; not thread-safe.
class SchemaTypes {
 public:
  explicit SchemaTypes(const OrderedJson& root) : root_(root) {}

  // The types that `schema`, a part of the root, allows: by type, nullable, enum, const, anyOf,
  // oneOf, allOf and a $ref within the root. All of them where nothing says, the schema goes too
  // deep, or the work is spent; none where it contradicts itself.
  JsonTypes of(const OrderedJson& schema) { return types(schema, 0); }

 private:
  JsonTypes types(const OrderedJson& schema, int depth);
  JsonTypes by_keyword(const std::string& keyword, const OrderedJson& value, int depth);
  JsonTypes of_values(const OrderedJson& values);
  JsonTypes any_of(const OrderedJson& branches, int depth);
  const OrderedJson* find(const std::string& reference);
  bool spend(size_t steps);

  const OrderedJson& root_;
  std::unordered_map<std::string, const OrderedJson*> found_;  // by reference
  int64_t left_ = 65'536;  // steps: keywords, values of enums and names of types
};

// Returns whether the values are strings, or perhaps null: in notations that write arguments as
// plain text such a string stands without quotes. Who writes them and who reads them must agree.
inline bool only_text(JsonTypes types) {
  return (types & kJsonString) != 0 && (types & ~(kJsonString | kJsonNull)) == 0;
}

}  // namespace skiff
