#include "serve/journal/traceparent.h"

#include <algorithm>
#include <cstddef>

namespace skiff::journal {
namespace {

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

// version "-" trace-id "-" parent-id "-" flags; later versions may add fields behind another "-".
std::optional<TraceParent> parse_traceparent(std::string_view header) {
  constexpr size_t kSize = 55, kTrace = 3, kSpan = 36, kFlags = 53;
  if (header.size() < kSize || header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const std::string_view version = header.substr(0, 2), flags = header.substr(kFlags, 2);
  const std::string_view trace = header.substr(kTrace, 32), span = header.substr(kSpan, 16);
  if (!is_hex(version) || version == "ff" || !is_hex(flags) || !is_id(trace) || !is_id(span))
    return std::nullopt;
  if (header.size() > kSize && (version == "00" || header[kSize] != '-')) return std::nullopt;
  const char low = flags[1];
  const int digit = low <= '9' ? low - '0' : low - 'a' + 10;
  return TraceParent{std::string(trace), std::string(span), digit % 2 == 1};
}

}  // namespace skiff::journal
