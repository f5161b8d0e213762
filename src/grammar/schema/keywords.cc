// The keywords of JSON Schema 2020-12 that speak about a value by itself, one function each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "grammar/mended_text.h"
#include "grammar/regex.h"
#include "grammar/schema/expander.h"
#include "grammar/schema/formats.h"
#include "grammar/schema/json_values.h"

namespace skiff::grammar {
namespace {

// The most characters or elements that a schema may demand.
constexpr uint32_t kMaxMinimum = 100'000;

bool allows_everything(Node schema) {
  return schema->is_boolean() ? schema->get<bool>() : schema->is_object() && schema->empty();
}

// Leaves the numbers of `shape` that lie in the range, too.
void narrow(Shape& shape, const NumberRange& range) {
  Shape other;
  other.range = range;
  if (auto both = intersection(shape, other)) shape = std::move(*both);
}

// Which bound of a range a keyword gives.
enum class Side { kLow, kHigh };

// A whole number that a double may have rounded (one beyond 64 bits, or one that has more digits
// than its shortest spelling) gives way to the next double inwards: what lies within that bound
// lies within the one that was written, too.
NumberRange range_of(const OrderedJson& number, Side side, bool exclusive) {
  NumberRange out;
  auto& bound = side == Side::kLow ? out.low : out.high;
  bound = Bound{exact_number(number), exclusive};
  const Decimal shortest = Decimal::parse(number.dump());
  if (!is_beyond_integers(number) && compare(bound->value, shortest) == 0) return out;
  out.narrowed = true;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double next =
      std::nextafter(number.get<double>(), side == Side::kLow ? kInfinity : -kInfinity);
  if (std::isfinite(next))
    bound = Bound{exact_number(next), false};
  else
    out.low = out.high = Bound{{}, true};  // nothing lies further inwards
  return out;
}

}  // namespace

const std::vector<Expander::Keyword>& Expander::keywords() {
  static const std::vector<Keyword> kKeywords = {
      {"type", &Expander::type},
      {"enum", &Expander::enumeration},
      {"const", &Expander::constant},
      {"minimum", &Expander::minimum},
      {"maximum", &Expander::maximum},
      {"exclusiveMinimum", &Expander::exclusive_minimum},
      {"exclusiveMaximum", &Expander::exclusive_maximum},
      {"multipleOf", &Expander::multiple_of},
      {"minLength", &Expander::min_length},
      {"maxLength", &Expander::max_length},
      {"pattern", &Expander::pattern},
      {"format", &Expander::format},
      {"items", &Expander::elements},
      {"prefixItems", &Expander::elements},
      {"additionalItems", nullptr},
      {"minItems", &Expander::min_items},
      {"maxItems", &Expander::max_items},
      {"uniqueItems", &Expander::unique_items},
      {"contains", &Expander::never},
      {"minContains", nullptr},
      {"maxContains", nullptr},
      {"properties", &Expander::members},
      {"patternProperties", &Expander::members},
      {"additionalProperties", &Expander::members},
      {"required", &Expander::required},
      {"propertyNames", &Expander::property_names},
      {"minProperties", &Expander::min_members},
      {"maxProperties", &Expander::max_members},
      {"not", &Expander::negation},
      {"if", &Expander::condition},
      {"dependentRequired", &Expander::dependent},
      {"dependentSchemas", &Expander::dependent},
      {"dependencies", &Expander::dependent},
      {"unevaluatedProperties", &Expander::unevaluated},
      {"unevaluatedItems", &Expander::unevaluated},
      {"$dynamicRef", &Expander::never},
      {"$recursiveRef", &Expander::never},
      {"$id", &Expander::identifier},
  };
  return kKeywords;
}

uint32_t Expander::count(Node schema, Node value, std::string_view keyword) const {
  const bool whole =
      value->is_number_unsigned() || (value->is_number_float() && type_of(*value) == kIntegerType);
  if (!whole || value->get<double>() < 0) fail(schema, keyword, "must be a whole number >= 0");
  const double number = value->get<double>();
  const bool minimum = keyword.starts_with("min");
  if (minimum && number > kMaxMinimum)
    fail(schema, keyword, fmt::format("is {}, more than {}", value->dump(), kMaxMinimum));
  return number >= kEndless ? kEndless : static_cast<uint32_t>(number);
}

void Expander::check_number(Node schema, Node value) const {
  if (!value->is_number()) fail(schema, keyword_, "must be a number");
}

void Expander::check_schema(Node schema, Node value, std::string_view keyword) const {
  if (!value->is_object() && !value->is_boolean()) fail(schema, keyword, "must be a schema");
}

void Expander::check_schemas(Node schema, Node value, std::string_view keyword) const {
  if (!value->is_object()) fail(schema, keyword, "must be an object of schemas");
}

void Expander::type(Node schema, Node value, Shape& shape) {
  struct Row {
    std::string_view name;
    uint8_t bits;
  };
  static constexpr Row kTypes[] = {{"null", kNullType},       {"boolean", kBooleanType},
                                   {"integer", kIntegerType}, {"number", kNumberType},
                                   {"string", kStringType},   {"array", kArrayType},
                                   {"object", kObjectType}};
  uint8_t bits = 0;
  const auto add = [&](const OrderedJson& name) {
    for (const Row& row : kTypes)
      if (name.is_string() && name.get_ref<const std::string&>() == row.name) {
        bits |= row.bits;
        return;
      }
    fail(schema, "type", fmt::format("{} is not a type", name.dump().substr(0, 80)));
  };
  if (value->is_array())
    for (const OrderedJson& name : *value) add(name);
  else
    add(*value);
  shape.types &= bits;
}

void Expander::check_constant(Node schema, const OrderedJson& value) const {
  if (is_beyond_integers(value))
    fail(schema, keyword_,
         fmt::format(
             "holds the number {}, which is beyond 64 bits and may have been rounded when it "
             "was read",
             value.dump()));
  if (value.is_string()) check_text(schema, value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const auto& item : value.items()) {
    if (value.is_object()) check_text(schema, item.key());
    check_constant(schema, item.value());
  }
}

void Expander::check_text(Node schema, const std::string& text) const {
  if (is_mended(text)) fail(schema, keyword_, std::string(kMended));
}

void Expander::enumeration(Node schema, Node value, Shape& shape) {
  if (!value->is_array()) fail(schema, "enum", "must be a list");
  check_constant(schema, *value);
  Shape other;
  other.values.emplace();
  for (const OrderedJson& one : *value) other.values->push_back(&one);
  fuel_.burn(static_cast<int64_t>(value->size()));
  if (shape.values) {
    if (auto both = intersection(shape, other))
      shape = std::move(*both);
    else
      shape.types = 0;
  } else {
    shape.values = std::move(other.values);
  }
}

void Expander::constant(Node schema, Node value, Shape& shape) {
  check_constant(schema, *value);
  Shape other;
  other.values = {value};
  if (auto both = intersection(shape, other))
    shape = std::move(*both);
  else
    shape.types = 0;
}

void Expander::minimum(Node schema, Node value, Shape& shape) {
  check_number(schema, value);
  narrow(shape, range_of(*value, Side::kLow, false));
}

void Expander::maximum(Node schema, Node value, Shape& shape) {
  check_number(schema, value);
  narrow(shape, range_of(*value, Side::kHigh, false));
}

void Expander::check_exclusive(Node schema, Node value) const {
  if (value->is_boolean())
    fail(schema, keyword_, "as a boolean is draft 4's; give the bound itself");
  check_number(schema, value);
}

void Expander::exclusive_minimum(Node schema, Node value, Shape& shape) {
  check_exclusive(schema, value);
  narrow(shape, range_of(*value, Side::kLow, true));
}

void Expander::exclusive_maximum(Node schema, Node value, Shape& shape) {
  check_exclusive(schema, value);
  narrow(shape, range_of(*value, Side::kHigh, true));
}

void Expander::multiple_of(Node schema, Node value, Shape& shape) {
  constexpr size_t kMaxModulusDigits = 4;
  check_number(schema, value);
  const Decimal step = Decimal::parse(value->dump());
  if (step.negative || step.zero()) fail(schema, keyword_, "must be greater than 0");
  const bool whole = step.fraction.empty() && step.whole.size() <= kMaxModulusDigits &&
                     std::stoi(step.whole) <= 1000;
  const bool power = step.whole == "0" && step.fraction.size() <= 30 &&
                     step.fraction.find_first_not_of('0') == step.fraction.size() - 1 &&
                     step.fraction.back() == '1';
  if (!whole && !power)
    fail(schema, keyword_, "is supported for whole numbers up to 1000 and for 0.1, 0.01 and so on");
  shape.multiples.push_back(step);
}

void Expander::min_length(Node schema, Node value, Shape& shape) {
  shape.min_length = std::max(shape.min_length, count(schema, value, keyword_));
}

void Expander::max_length(Node schema, Node value, Shape& shape) {
  shape.max_length = std::min(shape.max_length, count(schema, value, keyword_));
}

void Expander::pattern(Node schema, Node value, Shape& shape) {
  if (!value->is_string()) fail(schema, keyword_, "must be a string");
  try {
    Regex::parse(value->get_ref<const std::string&>());
  } catch (const Refusal& refusal) {
    fail(schema, keyword_, refusal.what());
  }
  shape.patterns.push_back(value->get<std::string>());
}

void Expander::format(Node schema, Node value, Shape& shape) {
  if (!value->is_string()) fail(schema, keyword_, "must be a string");
  const auto& name = value->get_ref<const std::string&>();
  if (is_format(name))
    shape.formats.push_back(name);
  else if (strict_)
    fail(schema, keyword_, fmt::format("\"{}\" is not known", name.substr(0, 80)));
}

void Expander::elements(Node schema, Node value, Shape& shape) {
  if (keyword_ == "prefixItems" && !value->is_array())
    fail(schema, keyword_, "must be a list of schemas");
  if (!value->is_array()) check_schema(schema, value, keyword_);
  if (const Node other = member_of(schema, keyword_ == "items" ? "prefixItems" : "items");
      other && other->is_array() && value->is_array())
    fail(schema, keyword_, "as a list cannot stand beside prefixItems");
  if (shape.arrays.empty()) shape.arrays.push_back(schema);
}

void Expander::min_items(Node schema, Node value, Shape& shape) {
  shape.min_items = std::max(shape.min_items, count(schema, value, keyword_));
}

void Expander::max_items(Node schema, Node value, Shape& shape) {
  shape.max_items = std::min(shape.max_items, count(schema, value, keyword_));
}

void Expander::unique_items(Node schema, Node value, Shape&) {
  if (!value->is_boolean()) fail(schema, keyword_, "must be true or false");
  const Node most = member_of(schema, "maxItems");
  const bool trivial = most && most->is_number() && most->get<double>() <= 1;
  if (value->get<bool>() && !trivial)
    fail(schema, keyword_, "is not supported: a grammar cannot remember all earlier elements");
}

void Expander::members(Node schema, Node value, Shape& shape) {
  if (keyword_ == "additionalProperties")
    check_schema(schema, value, keyword_);
  else
    check_schemas(schema, value, keyword_);
  if (keyword_ == "properties")
    for (const auto& [name, unused] : value->get_ref<const OrderedJson::object_t&>())
      check_text(schema, name);
  if (keyword_ == "patternProperties")
    for (const auto& [pattern, unused] : value->get_ref<const OrderedJson::object_t&>()) {
      try {
        Regex::parse(pattern);
      } catch (const Refusal& refusal) {
        fail(schema, keyword_, refusal.what());
      }
    }
  if (shape.objects.empty()) shape.objects.push_back(schema);
}

void Expander::required(Node schema, Node value, Shape& shape) {
  if (!value->is_array()) fail(schema, keyword_, "must be a list of names");
  constexpr size_t kPairs = 32;  // one unit of fuel pays for so many comparisons of two names
  if (!fuel_.burn(static_cast<int64_t>(value->size() * value->size() / kPairs)))
    fail(schema, keyword_, "has too many names (the fuel is spent)");
  for (const OrderedJson& name : *value) {
    if (!name.is_string()) fail(schema, keyword_, "must be a list of names");
    const auto& text = name.get_ref<const std::string&>();
    check_text(schema, text);
    if (std::find(shape.required.begin(), shape.required.end(), text) == shape.required.end())
      shape.required.push_back(text);
  }
}

void Expander::property_names(Node schema, Node value, Shape& shape) {
  check_schema(schema, value, keyword_);
  shape.names.push_back(value);
}

void Expander::min_members(Node schema, Node value, Shape& shape) {
  shape.min_members = std::max(shape.min_members, count(schema, value, keyword_));
}

void Expander::max_members(Node schema, Node value, Shape& shape) {
  shape.max_members = std::min(shape.max_members, count(schema, value, keyword_));
}

void Expander::negation(Node schema, Node value, Shape& shape) {
  check_schema(schema, value, keyword_);
  if (allows_everything(value))
    shape.types = 0;
  else if (!value->is_boolean())
    fail(schema, keyword_, "is not supported");
}

void Expander::condition(Node schema, Node, Shape&) {
  if (member_of(schema, "then") || member_of(schema, "else"))
    fail(schema, keyword_, "is not supported; write anyOf with both cases");
}

void Expander::dependent(Node schema, Node value, Shape&) {
  check_schemas(schema, value, keyword_);
  if (!value->empty()) fail(schema, keyword_, "is not supported");
}

// Beside nothing that evaluates members from elsewhere, it means what additionalProperties does.
void Expander::unevaluated(Node schema, Node value, Shape& shape) {
  check_schema(schema, value, keyword_);
  if (allows_everything(value)) return;
  for (const std::string_view other : {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "contains"})
    if (member_of(schema, other))
      fail(schema, keyword_, fmt::format("beside \"{}\" is not supported", other));
  Nodes& layers = keyword_ == "unevaluatedItems" ? shape.arrays : shape.objects;
  if (layers.empty()) layers.push_back(schema);
}

void Expander::never(Node schema, Node, Shape&) { fail(schema, keyword_, "is not supported"); }

void Expander::identifier(Node schema, Node, Shape&) {
  if (schema != document_.root())
    fail(schema, keyword_,
         "inside a schema would change what references mean, and is not supported");
}

}  // namespace skiff::grammar
