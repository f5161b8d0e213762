#include "grammar/schema/json_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace skiff::grammar {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0, kTwoTo64 = 2 * kTwoTo63;

bool is_whole(double number) { return std::floor(number) == number; }
bool fits_integers(double number) { return number >= -kTwoTo63 && number < kTwoTo64; }

// `integer` is a number_integer or a number_unsigned.
bool equals(const OrderedJson& integer, double number) {
  if (!is_whole(number) || !fits_integers(number)) return false;
  if (integer.is_number_unsigned())
    return number >= 0 && integer.get<uint64_t>() == static_cast<uint64_t>(number);
  return number < kTwoTo63 && integer.get<int64_t>() == static_cast<int64_t>(number);
}

bool same_number(const OrderedJson& x, const OrderedJson& y) {
  if (x.is_number_float())
    return y.is_number_float() ? x.get<double>() == y.get<double>() : equals(y, x.get<double>());
  if (y.is_number_float()) return equals(x, y.get<double>());
  if (x.is_number_unsigned() == y.is_number_unsigned())
    return x.get<uint64_t>() == y.get<uint64_t>();
  // An integer that is not unsigned may still be positive where it was not read from a text.
  const auto& natural = x.is_number_unsigned() ? x : y;
  const auto& integer = x.is_number_unsigned() ? y : x;
  return std::cmp_equal(natural.get<uint64_t>(), integer.get<int64_t>());
}

const OrderedJson::object_t& members(const OrderedJson& object) {
  return object.get_ref<const OrderedJson::object_t&>();
}

bool same_object(const OrderedJson& x, const OrderedJson& y) {
  const auto& mine = members(x);
  const auto& others = members(y);
  if (mine.size() != others.size()) return false;
  // Names are unique, so objects of one size are equal if each member of one is in the other.
  return std::ranges::all_of(mine, [&](const auto& member) {
    const auto other =
        std::ranges::find_if(others, [&](const auto& one) { return one.first == member.first; });
    return other != others.end() && same_value(member.second, other->second);
  });
}

}  // namespace

bool same_value(const OrderedJson& x, const OrderedJson& y) {
  if (x.is_number() && y.is_number()) return same_number(x, y);
  if (x.type() != y.type()) return false;
  if (x.is_object()) return same_object(x, y);
  if (x.is_array()) return std::ranges::equal(x, y, same_value);
  return x == y;
}

size_t value_size(const OrderedJson& value) {
  size_t out = 1;
  if (value.is_object())
    for (const auto& [name, member] : members(value)) out += value_size(member);
  if (value.is_array())
    for (const OrderedJson& element : value) out += value_size(element);
  return out;
}

size_t value_size(const std::vector<const OrderedJson*>& values) {
  size_t out = 0;
  for (const OrderedJson* value : values) out += value_size(*value);
  return out;
}

Decimal exact_number(const OrderedJson& number) {
  if (number.is_number_float() && is_whole(number.get<double>()))
    return Decimal::parse(fmt::format("{:.0f}", number.get<double>()));
  return Decimal::parse(number.dump());
}

bool is_beyond_integers(const OrderedJson& number) {
  if (!number.is_number_float()) return false;
  const double value = number.get<double>();
  // An integer just below -2^63 is rounded to it.
  return is_whole(value) && (value >= kTwoTo64 || value <= -kTwoTo63);
}

}  // namespace skiff::grammar
