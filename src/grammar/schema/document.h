// grammar/schema/document.h -- a parsed JSON Schema, its references and its pointers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json_owner.h"
#include "grammar/refusal.h"

namespace skiff::grammar {

// A place in the document that is read as a schema: an object or a boolean.
using Node = const OrderedJson*;
// Schemas that all hold, in the order in which they were met.
using Nodes = std::vector<Node>;

class Document {
 public:
  // At most 64 levels deep. Throws Refusal.
  explicit Document(std::string_view text, size_t max_bytes);

  Node root() const { return &*json_; }
  // The schema that a "$ref" of `at` names. Throws Refusal for anything but a pointer into this
  // document.
  Node resolve(const std::string& reference, Node at) const;
  // The JSON pointer of a place in the document; "" for the whole.
  std::string pointer(Node place) const;
  // The pointer of a keyword of these schemas, or of those that they apply to the same value; of
  // the first schema if none of them has it.
  std::string pointer(const Nodes& schemas, std::string_view keyword) const;
  // Units of fuel for a Refusal of something in the document, whose pointer must be found.
  int64_t refusal_work() const { return 1 + static_cast<int64_t>(num_bytes_ / 32); }

 private:
  size_t num_bytes_;
  JsonOwner<OrderedJson> json_;
};

// The member `key` of an object; null if there is none.
Node member_of(Node object, std::string_view key);

}  // namespace skiff::grammar
