// grammar/schema/shape.h -- what a schema asks of a value, type by type, without references and
// combinations: the form in which schemas are intersected.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/number_range.h"
#include "grammar/regex_classes.h"
#include "grammar/schema/document.h"

namespace skiff::grammar {

enum TypeBits : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers with a fraction; "number" is both
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kNumberType = kIntegerType | kFractionType,
  kAllTypes = 127,
};

// Constraints of a type say nothing about values of others.
struct Shape {
  uint8_t types = kAllTypes;
  std::optional<std::vector<Node>> values;  // enum and const: one of these

  NumberRange range;
  std::vector<Decimal> multiples;

  uint32_t min_length = 0, max_length = kEndless;
  std::vector<std::string> patterns, formats;

  Nodes arrays;  // schemas whose prefixItems and items hold
  uint32_t min_items = 0, max_items = kEndless;

  Nodes objects;  // schemas whose properties, patternProperties and additionalProperties hold
  std::vector<std::string> required;
  Nodes names;  // propertyNames
  uint32_t min_members = 0, max_members = kEndless;
};

// What both ask; nothing if that is plainly impossible.
std::optional<Shape> intersection(Shape x, const Shape& y);
// Units of fuel for a copy, and for an intersection, which compares the members of lists in pairs.
int64_t copy_work(const Shape& shape);
int64_t intersection_work(const Shape& x, const Shape& y);

// Whether patterns, as JSON Schema reads them, find a match in texts. Each is read once in a
// reading. Throws Refusal where the fuel, which outlives it, is spent.
class PatternFinder {
 public:
  explicit PatternFinder(Fuel& fuel) : exprs_(fuel), speller_(exprs_, Spelling::kUtf8) {}
  bool finds(const std::string& pattern, const std::string& text, Reading reading);

 private:
  ExprSet exprs_;
  Speller speller_;
  std::unordered_map<std::string, ExprId> known_[2];  // by the reading
};

// The type of a value; kIntegerType for any number without a fraction.
uint8_t type_of(const OrderedJson& value);

// The schemas for a member `name` of an object, or element `index` of an array. Where the readings
// of a pattern differ about the name, the least reading of the schemas takes those of both cases,
// the greatest those that hold in either.
Nodes member_nodes(const Shape& shape, const std::string& name, PatternFinder& patterns,
                   Reading reading);
Nodes element_nodes(const Shape& shape, size_t index);
// The patterns of all patternProperties, each once.
std::vector<std::string> member_patterns(const Shape& shape);
// The schemas for a member whose name is not declared, and which of `patterns` it matches.
Nodes other_nodes(const Shape& shape, const std::vector<std::string>& patterns,
                  const std::vector<bool>& matches);
// The names in "properties", in the order of writing.
std::vector<std::string> declared_names(const Shape& shape);

}  // namespace skiff::grammar
