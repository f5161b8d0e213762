// Whether a value that the schema itself holds (enum, const) fits the rest of the schema, and
// whether any value can.
#include <algorithm>

#include "base/utf8.h"
#include "grammar/schema/formats.h"
#include "grammar/schema/json_values.h"
#include "grammar/schema/lowering.h"

namespace skiff::grammar {

bool SchemaLowering::string_fits(const std::string& text, const Shape& shape, Reading reading) {
  uint32_t length = 0;
  for (size_t at = 0; at < text.size(); ++length) utf8_next(text, &at);
  if (length < shape.min_length || length > shape.max_length) return false;
  for (const std::string& pattern : shape.patterns)
    if (!patterns_.finds(pattern, text, reading)) return false;
  if (reading == Reading::kGreatest) return true;
  Speller plain(exprs(), Spelling::kUtf8);
  return std::all_of(shape.formats.begin(), shape.formats.end(), [&](const std::string& format) {
    return exprs().matches(format_strings(format, plain), text);
  });
}

bool SchemaLowering::object_fits(const OrderedJson& value, const Shape& shape, Reading reading) {
  if (value.size() < shape.min_members || value.size() > shape.max_members) return false;
  for (const std::string& name : shape.required)
    if (!member_of(&value, name)) return false;
  for (const auto& [name, member] : value.get_ref<const OrderedJson::object_t&>()) {
    if (!fits(OrderedJson(name), shape.names, reading)) return false;
    if (!fits(member, nodes_of(shape, name, reading), reading)) return false;
  }
  return true;
}

bool SchemaLowering::fits(const OrderedJson& value, const Shape& shape, Reading reading) {
  if (shape.values) {
    const size_t pairs = value.is_structured() ? value_size(value) * value_size(*shape.values)
                                               : shape.values->size();
    spend(static_cast<int64_t>(pairs / 16));
    const auto same = [&](Node one) { return same_value(*one, value); };
    if (std::none_of(shape.values->begin(), shape.values->end(), same)) return false;
  }
  return fits_beside_values(value, shape, reading);
}

bool SchemaLowering::number_fits(const OrderedJson& value, const Shape& shape, Reading reading) {
  const Decimal number = exact_number(value);
  const bool any = reading == Reading::kGreatest && shape.range.narrowed;
  if (!any && !shape.range.holds(number)) return false;
  std::string text = number.whole;
  if (!number.fraction.empty()) text += "." + number.fraction;
  return std::ranges::all_of(shape.multiples, [&](const Decimal& step) {
    const ExprId multiples =
        step.fraction.empty()
            ? multiples_of(exprs(), static_cast<uint32_t>(std::stoul(step.whole)), true)
            : numbers_of_digits(exprs(), static_cast<uint32_t>(step.fraction.size()));
    return exprs().matches(multiples, text);
  });
}

bool SchemaLowering::fits_beside_values(const OrderedJson& value, const Shape& shape,
                                        Reading reading) {
  spend(4);
  const uint8_t type = type_of(value);
  if (!(shape.types & type)) return false;
  if (type & kNumberType) return number_fits(value, shape, reading);
  if (type == kStringType) return string_fits(value.get_ref<const std::string&>(), shape, reading);
  if (type == kObjectType) return object_fits(value, shape, reading);
  if (type != kArrayType) return true;
  if (value.size() < shape.min_items || value.size() > shape.max_items) return false;
  for (size_t i = 0; i < value.size(); ++i)
    if (!fits(value[i], element_nodes(shape, i), reading)) return false;
  return true;
}

bool SchemaLowering::fits(const OrderedJson& value, const Nodes& schemas, Reading reading) {
  return std::all_of(schemas.begin(), schemas.end(), [&](Node schema) {
    const Shapes& shapes = expander_.expand(schema);
    return std::any_of(shapes.begin(), shapes.end(),
                       [&](const Shape& shape) { return fits(value, shape, reading); });
  });
}

bool SchemaLowering::is_empty(const Shape& shape, int depth) {
  constexpr Reading kRead = Reading::kGreatest;
  spend(16);
  if (shape.values)
    return std::none_of(shape.values->begin(), shape.values->end(),
                        [&](Node value) { return fits_beside_values(*value, shape, kRead); });
  uint8_t left = shape.types;
  if ((left & kNumberType) && !shape.range.narrowed && numbers(shape) == kNothing)
    left &= static_cast<uint8_t>(~kNumberType);
  if ((left & kStringType) && string_body(shape, json_strings(), kRead) == kNothing)
    left &= static_cast<uint8_t>(~kStringType);
  if ((left & kArrayType) && shape.min_items > shape.max_items)
    left &= static_cast<uint8_t>(~kArrayType);
  const auto impossible = [&](const std::string& name) {
    try {
      const Shapes shapes = expander_.expand_all(nodes_of(shape, name, kRead));
      return std::all_of(shapes.begin(), shapes.end(),
                         [&](const Shape& one) { return is_empty(one, depth - 1); });
    } catch (const Refusal&) {
      spend(document_.refusal_work());
      return false;  // it refers to a schema that is being expanded: it cannot be told
    }
  };
  if ((left & kObjectType) && depth > 0 &&
      (shape.min_members > shape.max_members ||
       std::any_of(shape.required.begin(), shape.required.end(), impossible)))
    left &= static_cast<uint8_t>(~kObjectType);
  return left == 0;
}

}  // namespace skiff::grammar
