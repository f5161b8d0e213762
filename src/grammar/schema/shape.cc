#include "grammar/schema/shape.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "grammar/regex.h"
#include "grammar/schema/json_values.h"

namespace skiff::grammar {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& value : from)
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

void tighten(NumberRange& x, const NumberRange& y) {
  const auto closer = [](std::optional<Bound>& mine, const std::optional<Bound>& other, int sign) {
    if (!other) return;
    const int order = mine ? sign * compare(other->value, mine->value) : 1;
    if (order > 0)
      mine = other;
    else if (order == 0)
      mine->exclusive |= other->exclusive;
  };
  closer(x.low, y.low, 1);
  closer(x.high, y.high, -1);
  x.narrowed |= y.narrowed;
}

bool is_prefix_list(Node items) { return items && items->is_array(); }

}  // namespace

std::optional<Shape> intersection(Shape x, const Shape& y) {
  x.types &= y.types;
  if (y.values && !x.values) {
    x.values = y.values;
  } else if (y.values) {
    std::erase_if(*x.values, [&](Node value) {
      return std::none_of(y.values->begin(), y.values->end(),
                          [&](Node other) { return same_value(*value, *other); });
    });
  }
  if (x.types == 0 || (x.values && x.values->empty())) return std::nullopt;
  tighten(x.range, y.range);
  x.multiples.insert(x.multiples.end(), y.multiples.begin(), y.multiples.end());
  x.min_length = std::max(x.min_length, y.min_length);
  x.max_length = std::min(x.max_length, y.max_length);
  append(x.patterns, y.patterns);
  append(x.formats, y.formats);
  append(x.arrays, y.arrays);
  x.min_items = std::max(x.min_items, y.min_items);
  x.max_items = std::min(x.max_items, y.max_items);
  append(x.objects, y.objects);
  append(x.required, y.required);
  append(x.names, y.names);
  x.min_members = std::max(x.min_members, y.min_members);
  x.max_members = std::min(x.max_members, y.max_members);
  return x;
}

int64_t copy_work(const Shape& x) {
  constexpr size_t kPointers = 4;  // one unit of fuel pays for so many copied pointers
  const size_t pointers =
      (x.values ? x.values->size() : 0) + x.arrays.size() + x.objects.size() + x.names.size();
  const size_t texts =
      x.multiples.size() + x.patterns.size() + x.formats.size() + x.required.size();
  return static_cast<int64_t>(16 + pointers / kPointers + texts);
}

int64_t intersection_work(const Shape& x, const Shape& y) {
  constexpr size_t kPairs = 16;  // one unit of fuel pays for so many comparisons
  const auto pairs = [](const auto& mine, const auto& other) { return mine.size() * other.size(); };
  const size_t all = (x.values && y.values ? value_size(*x.values) * value_size(*y.values) : 0) +
                     pairs(x.patterns, y.patterns) + pairs(x.formats, y.formats) +
                     pairs(x.arrays, y.arrays) + pairs(x.objects, y.objects) +
                     pairs(x.required, y.required) + pairs(x.names, y.names);
  return copy_work(x) + static_cast<int64_t>(all / kPairs);
}

uint8_t type_of(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return kNullType;
    case OrderedJson::value_t::boolean:
      return kBooleanType;
    case OrderedJson::value_t::string:
      return kStringType;
    case OrderedJson::value_t::array:
      return kArrayType;
    case OrderedJson::value_t::object:
      return kObjectType;
    case OrderedJson::value_t::number_float: {
      const double number = value.get<double>();
      return std::floor(number) == number ? kIntegerType : kFractionType;
    }
    default:
      return kIntegerType;
  }
}

bool PatternFinder::finds(const std::string& pattern, const std::string& text, Reading reading) {
  auto& known = known_[reading == Reading::kLeast ? 0 : 1];
  const auto [entry, fresh] = known.try_emplace(pattern, kNothing);
  if (fresh) entry->second = Regex::parse(pattern, reading).search(speller_);
  const bool found = exprs_.matches(entry->second, text);
  if (!exprs_.fuel().burn())
    refuse("the pattern {} is too complex (the fuel is spent)", pattern.substr(0, 80));
  return found;
}

Nodes member_nodes(const Shape& shape, const std::string& name, PatternFinder& patterns,
                   Reading reading) {
  Nodes out;
  for (const Node layer : shape.objects) {
    bool known = false;  // additionalProperties does not hold
    if (const Node properties = member_of(layer, "properties"))
      if (const Node value = member_of(properties, name)) out.push_back(value), known = true;
    if (const Node by_pattern = member_of(layer, "patternProperties"))
      for (const auto& [pattern, value] : by_pattern->get_ref<const OrderedJson::object_t&>()) {
        // The larger set of names has the smaller set of values.
        if (patterns.finds(pattern, name, opposite(reading))) out.push_back(&value);
        known = known || patterns.finds(pattern, name, reading);
      }
    const Node additional = member_of(layer, "additionalProperties");
    const Node rest = additional ? additional : member_of(layer, "unevaluatedProperties");
    if (!known && rest) out.push_back(rest);
  }
  return out;
}

std::vector<std::string> member_patterns(const Shape& shape) {
  std::vector<std::string> out;
  for (const Node layer : shape.objects)
    if (const Node patterns = member_of(layer, "patternProperties"))
      for (const auto& [pattern, value] : patterns->get_ref<const OrderedJson::object_t&>())
        append(out, {pattern});
  return out;
}

Nodes other_nodes(const Shape& shape, const std::vector<std::string>& patterns,
                  const std::vector<bool>& matches) {
  Nodes out;
  for (const Node layer : shape.objects) {
    bool known = false;
    if (const Node mine = member_of(layer, "patternProperties"))
      for (size_t i = 0; i < patterns.size(); ++i)
        if (const Node value = matches[i] ? member_of(mine, patterns[i]) : nullptr)
          out.push_back(value), known = true;
    const Node additional = member_of(layer, "additionalProperties");
    const Node rest = additional ? additional : member_of(layer, "unevaluatedProperties");
    if (!known && rest) out.push_back(rest);
  }
  return out;
}

std::vector<std::string> declared_names(const Shape& shape) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const Node layer : shape.objects)
    if (const Node properties = member_of(layer, "properties"))
      for (const auto& [name, value] : properties->get_ref<const OrderedJson::object_t&>())
        if (seen.insert(name).second) out.push_back(name);
  return out;
}

Nodes element_nodes(const Shape& shape, size_t index) {
  Nodes out;
  for (const Node layer : shape.arrays) {
    // "items" as a list with "additionalItems" is the form of drafts before 2020-12.
    const Node items = member_of(layer, "items");
    const Node prefix = is_prefix_list(items) ? items : member_of(layer, "prefixItems");
    const Node additional = is_prefix_list(items) ? member_of(layer, "additionalItems") : items;
    const Node rest = additional ? additional : member_of(layer, "unevaluatedItems");
    if (prefix && index < prefix->size())
      out.push_back(&(*prefix)[index]);
    else if (rest)
      out.push_back(rest);
  }
  return out;
}

}  // namespace skiff::grammar
