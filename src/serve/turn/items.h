// serve/turn/items.h -- reading the items of a request: messages, and the blocks that they consist
// of.
#pragma once
#include <string>
#include <utility>

#include "base/json.h"
#include "base/result.h"

namespace skiff::turn {

inline Error invalid(std::string field, std::string what) {
  return {Code::kInvalid, std::move(what), std::move(field)};
}
inline Error unsupported(std::string field, std::string what) {
  return {Code::kUnsupported, std::move(what), std::move(field)};
}

// Returns a member that is there and not null, else null.
inline const OrderedJson* member(const OrderedJson& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Returns the item's type; "" if it has none.
inline std::string type_of(const OrderedJson& item) {
  const OrderedJson* type = member(item, "type");
  return type && type->is_string() ? type->get<std::string>() : std::string();
}

}  // namespace skiff::turn
