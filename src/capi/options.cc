#include "capi/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_owner.h"

namespace skiff::capi {
namespace {

constexpr size_t kMaxName = 128;     // bytes
constexpr size_t kMaxRepeats = 256;  // values of one option

Error invalid(const std::string& name, std::string what) {
  return {Code::kInvalid, std::move(what), name};
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

// A number as the command line takes it: 3.0, which a language without integers writes, is 3.
std::string text_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float())
    if (const double x = value.get<double>();
        x == static_cast<double>(static_cast<int64_t>(std::clamp(x, -1e15, 1e15))))
      return fmt::format("{}", static_cast<int64_t>(x));
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

Result<std::vector<std::string>> option_words(std::string_view json) {
  auto parsed = parse_ordered_json(json, {.max_bytes = kMaxOptions});
  if (!parsed) return Error{Code::kInvalid, "options: " + parsed.error().what, "options"};
  const JsonOwner<OrderedJson> owner(std::move(*parsed));
  const OrderedJson& options = *owner;
  if (!options.is_object())
    return invalid("options", "options must be a JSON object, as in {\"model\": \"models/demo\"}");
  std::vector<std::string> words;
  for (const auto& [name, value] : options.items()) {
    if (!is_name(name))
      return invalid("options", fmt::format("options has the key {}, which is no name of a flag",
                                            OrderedJson(name.substr(0, kMaxName)).dump()));
    if (value.is_null()) continue;
    if (!value.is_array()) {
      words.push_back(fmt::format("--{}={}", name, text_of(value)));
      continue;
    }
    if (value.size() > kMaxRepeats)
      return invalid(name, fmt::format("{} has {} values, at most {} are allowed", name,
                                       value.size(), kMaxRepeats));
    for (const OrderedJson& one : value)
      words.push_back(fmt::format("--{}={}", name, text_of(one)));
  }
  return words;
}

}  // namespace skiff::capi
