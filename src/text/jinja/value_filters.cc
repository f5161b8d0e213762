// Implements the filters on single values, and the table of all filters.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

Value fallback(Interpreter&, const Value& input, const Args& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  const bool use = input.is_undefined() || (bound.flag(1, false) && !truthy(input));
  if (!use) return input;
  return bound[0] ? *bound[0] : Value("");
}

// Digits with single underscores between them, as Python allows.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      out += text[i];
    else if (i == 0 || i + 1 == text.size() || text[i + 1] == '_')
      return std::nullopt;
  }
  return out;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  auto digits = without_underscores(strip(text, Side::kBoth));
  if (!digits || digits->empty()) return std::nullopt;
  const bool negative = (*digits)[0] == '-';
  if (negative || (*digits)[0] == '+') digits->erase(0, 1);
  const auto prefix = [&](char letter) {
    return digits->size() > 2 && (*digits)[0] == '0' && ((*digits)[1] | 0x20) == letter;
  };
  if ((base == 16 && prefix('x')) || (base == 8 && prefix('o')) || (base == 2 && prefix('b')))
    digits->erase(0, 2);
  if (digits->starts_with('-') || digits->starts_with('+')) return std::nullopt;
  if (negative) *digits = fmt::format("-{}", *digits);
  int64_t value = 0;
  const char* end = digits->data() + digits->size();
  const auto result = std::from_chars(digits->data(), end, value, base);
  if (result.ptr != end || digits->empty()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) fail("an integer does not fit into 64 bits");
  return result.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  auto digits = without_underscores(strip(text, Side::kBoth));
  if (!digits) return std::nullopt;
  if (digits->starts_with('+')) digits->erase(0, 1);
  if (digits->starts_with('+') || digits->empty()) return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto result = std::from_chars(digits->data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(digits->c_str(), nullptr);
  return value;
}

std::optional<int64_t> truncated(double d) {
  if (std::isnan(d) || std::isinf(d)) return std::nullopt;
  if (!(std::abs(d) < 9.2e18)) fail("an integer does not fit into 64 bits");
  return static_cast<int64_t>(d);
}

Value to_int(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("int", args, {"default", "base"});
  Value other = bound[0] ? *bound[0] : Value(int64_t{0});
  const int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) return other;
  std::optional<int64_t> value;
  int64_t i;
  if (input.is_undefined()) fail("{}", input.undefined_reason());
  if (is_integral(input, &i)) return i;
  if (input.as_wide()) return input;
  if (const double* d = input.as_float()) value = truncated(*d);
  if (const std::string* text = input.as_text()) {
    in.budget().make(text->size());
    value = parse_int(*text, static_cast<int>(base));
    if (!value) in.budget().make(text->size());
    if (!value)
      if (const auto d = parse_float(*text)) value = truncated(*d);
  }
  return value ? Value(*value) : other;
}

Value to_float(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("float", args, {"default"});
  double d;
  if (input.is_undefined()) fail("{}", input.undefined_reason());
  if (is_number(input, &d)) return d;
  if (const std::string* text = input.as_text()) {
    in.budget().make(text->size());
    if (const auto value = parse_float(*text)) return *value;
  }
  return bound[0] ? *bound[0] : Value(0.0);
}

Value absolute(Interpreter&, const Value& input, const Args&) {
  double d;
  int64_t i;
  if (!is_number(input, &d)) fail("bad operand type for abs(): '{}'", type_name(input));
  if (is_integral(input, &i)) return i < 0 ? negated(input) : Value(i);
  return input.as_wide() ? input : Value(std::abs(d));
}

Value rounded(Interpreter&, const Value& input, const Args& args) {
  const Bound bound("round", args, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string how = bound.text(1, "common");
  double d;
  if (how != "common" && how != "ceil" && how != "floor")
    fail("round: method must be common, ceil or floor");
  if (!is_number(input, &d)) fail("round needs a number, not {}", type_name(input));
  if (std::abs(precision) > 300) fail("round: precision must be in [-300, 300]");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (how == "ceil") return std::ceil(d * scale) / scale;
  if (how == "floor") return std::floor(d * scale) / scale;
  int64_t i;
  if (is_integral(input, &i) && precision >= 0) return i;
  if (input.as_wide() && precision >= 0) return input;
  if (std::isnan(d) || std::isinf(d)) return d;
  // Rounds the decimal digits of the exact value, ties to even, as Python's round() does.
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", d, precision).c_str(), nullptr);
  const double result = std::nearbyint(d * scale) / scale;
  return is_integral(input, &i) ? Value(truncated(result).value()) : Value(result);
}

// The filter that Hugging Face defines: keys keep their order, and only what JSON requires is
// escaped.
Value tojson(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound[1] && !bound[1]->is_none()) {
    style.pretty = true;
    style.item_separator = ",";
    style.indent = blanks_or_text(in, bound, 1, 0);
  }
  if (bound[2] && !bound[2]->is_none()) {
    const Values two = iterate(in.budget(), *bound[2]);
    if (two.size() != 2 || !two[0].is_text() || !two[1].is_text())
      fail("tojson: separators must be two texts");
    style.item_separator = *two[0].as_text();
    style.key_separator = *two[1].as_text();
  }
  return json_text(in.budget(), input, style);
}

Value attr(Interpreter& in, const Value& input, const Args& args) {
  const std::string& name = Bound("attr", args, {"name"}).text(0);
  if (input.as_dict()) {
    const Value method = method_of(in, input, name);
    return method.is_none()
               ? Value::undefined(fmt::format("'dict object' has no attribute '{}'", excerpt(name)))
               : method;
  }
  return in.attribute(input, name);
}

constexpr FilterEntry kFilters[] = {{"default", fallback}, {"d", fallback},   {"int", to_int},
                                    {"float", to_float},   {"abs", absolute}, {"round", rounded},
                                    {"tojson", tojson},    {"attr", attr}};

const FilterEntry* find_filter(std::string_view name) {
  for (const auto table : filter_tables())
    for (const FilterEntry& entry : table)
      if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

std::array<std::span<const FilterEntry>, 7> filter_tables() {
  return {text_filters(),     layout_filters(),    markup_filters(), sequence_filters(),
          grouping_filters(), selection_filters(), value_filters()};
}

std::span<const FilterEntry> value_filters() { return kFilters; }

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Interpreter& in, const std::string& name, const Value& input, const Args& args) {
  const FilterEntry* entry = find_filter(name);
  if (!entry) fail("no filter named '{}'", excerpt(name));
  const Interpreter::Door door(in, &input, args);
  return entry->function(in, input, args);
}

}  // namespace skiff::jinja
