#include "serve/openai/values.h"

#include <cmath>
#include <limits>

namespace skiff::openai {
namespace {

constexpr size_t kMaxShown = 40;  // bytes

Problem must_be(const std::string& kind, const OrderedJson& value) {
  return {fmt::format("must be {}, but is {}", kind, described(value))};
}

}  // namespace

std::string described(const OrderedJson& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kMaxShown)
    return fmt::format("a string of {} bytes", value.get_ref<const std::string&>().size());
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::optional<int64_t> as_integer(const OrderedJson& value) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value.is_number_unsigned() && value.get<uint64_t>() > kMax) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double x = value.get<double>();
  constexpr double kExact = 9007199254740992;  // 2^53: beyond it doubles skip integers
  if (std::trunc(x) != x || std::abs(x) > kExact) return std::nullopt;
  return static_cast<int64_t>(x);
}

MaybeProblem read_integer(const OrderedJson& value, int64_t low, int64_t high, int64_t& out) {
  if (!value.is_number()) return must_be("an integer", value);
  const auto x = as_integer(value);
  // A number that is no int64 gets the message with the range: it may be an integer that is too
  // large.
  if (!x || *x < low || *x > high)
    return must_be(fmt::format("an integer in [{}, {}]", low, high), value);
  out = *x;
  return std::nullopt;
}

MaybeProblem read_number(const OrderedJson& value, double low, double high, double& out) {
  if (!value.is_number()) return must_be("a number", value);
  const double x = value.get<double>();
  if (!(x >= low && x <= high))
    return must_be(fmt::format("a number in [{}, {}]", low, high), value);
  out = x;
  return std::nullopt;
}

MaybeProblem read_boolean(const OrderedJson& value, bool& out) {
  if (!value.is_boolean()) return must_be("true or false", value);
  out = value.get<bool>();
  return std::nullopt;
}

MaybeProblem read_string(const OrderedJson& value, std::string& out) {
  if (!value.is_string()) return must_be("a string", value);
  out = value.get<std::string>();
  return std::nullopt;
}

MaybeProblem read_strings(const OrderedJson& value, std::vector<std::string>& out) {
  const char* kind = "a string or a list of strings";
  if (value.is_string()) {
    out = {value.get<std::string>()};
    return std::nullopt;
  }
  if (!value.is_array()) return must_be(kind, value);
  std::vector<std::string> strings;
  for (const OrderedJson& item : value) {
    if (!item.is_string())
      return Problem{fmt::format("must be {}, but holds {}", kind, described(item))};
    strings.push_back(item.get<std::string>());
  }
  out = std::move(strings);
  return std::nullopt;
}

MaybeProblem read_token_ids(const OrderedJson& value, std::vector<Token>& out) {
  if (!value.is_array()) return must_be("a list of token ids", value);
  std::vector<Token> ids;
  ids.reserve(value.size());
  for (const OrderedJson& item : value) {
    const auto id = as_integer(item);
    if (!id || *id < 0 || *id > std::numeric_limits<Token>::max())
      return Problem{
          fmt::format("must be a list of token ids, which are integers in [0, 2147483647], "
                      "but holds {}",
                      described(item))};
    ids.push_back(static_cast<Token>(*id));
  }
  out = std::move(ids);
  return std::nullopt;
}

}  // namespace skiff::openai
