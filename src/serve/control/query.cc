#include "serve/control/query.h"

#include <fmt/format.h>

#include <charconv>

#include "base/log.h"
#include "serve/http/head.h"

namespace skiff::control {

Error invalid(std::string_view field, std::string what) {
  return {Code::kInvalid, std::move(what), std::string(field)};
}

Status for_each_part(std::string_view text, char separator,
                     const std::function<Status(std::string_view part)>& take) {
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (const Status good = take(text.substr(0, end)); !good) return good;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return ok();
}

Status read_query(
    std::string_view query,
    const std::function<Status(std::string_view key, const std::string& value)>& take) {
  constexpr size_t kMaxQuery = 4096;
  if (query.size() > kMaxQuery) return invalid("", "the query is too long");
  return for_each_part(query, '&', [&](std::string_view pair) -> Status {
    const size_t equals = pair.find('=');
    const auto value = http::percent_decoded(equals == pair.npos ? "" : pair.substr(equals + 1));
    const std::string_view key = pair.substr(0, equals);
    if (!value) return invalid(key, "the query has a malformed escape");
    return take(key, *value);
  });
}

Status read_seconds(const std::string& value, double& out) {
  constexpr double kMaxSeconds = 3600;
  double seconds = -1;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, seconds);
  if (read.ec != std::errc() || read.ptr != end || !(seconds >= 0 && seconds <= kMaxSeconds))
    return invalid("timeout", fmt::format("timeout must be 0 to {} seconds", kMaxSeconds));
  out = seconds;
  return ok();
}

Status read_switch(std::string_view key, const std::string& value, bool& out) {
  const bool on = value == "true" || value == "True" || value == "1";
  if (!on && value != "false" && value != "False" && value != "0")
    return invalid(
        key, fmt::format("{} must be true or false, and not \"{}\"", key, escaped(value, 80)));
  out = on;
  return ok();
}

}  // namespace skiff::control
