// base/schema_types.h -- which types of values a JSON schema allows, as far as it says so plainly.
#pragma once
#include <cstdint>

#include "base/json.h"

namespace skiff {

// A set of types of JSON values. Integers are numbers.
using JsonTypes = uint8_t;
constexpr JsonTypes kJsonNull = 1, kJsonBoolean = 2, kJsonNumber = 4, kJsonString = 8,
                    kJsonArray = 16, kJsonObject = 32, kJsonAny = 63;

// The types that `schema`, a part of `root`, allows: by type, nullable, enum, const, anyOf, oneOf,
// allOf and a $ref within `root`. All of them where nothing says, or the schema goes too deep; none
// where it contradicts itself.
JsonTypes allowed_types(const OrderedJson& schema, const OrderedJson& root);

// Whether the values are strings, or perhaps null: in notations that write arguments as plain text
// such a string stands without quotes. Who writes them and who reads them must agree.
inline bool only_text(JsonTypes types) {
  return (types & kJsonString) != 0 && (types & ~(kJsonString | kJsonNull)) == 0;
}

}  // namespace skiff
