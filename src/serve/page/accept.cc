#include "serve/page/accept.h"

#include <algorithm>
#include <string>

#include "serve/http/head.h"

namespace skiff::page {
namespace {

using http::lower_case;
using http::trimmed;

// Calls `visit` with each part, trimmed, until it returns true; returns whether it did.
template <class Visit>
bool any_part(std::string_view text, char separator, Visit visit) {
  while (true) {
    const size_t end = std::min(text.find(separator), text.size());
    if (visit(trimmed(text.substr(0, end)))) return true;
    if (end == text.size()) return false;
    text.remove_prefix(end + 1);
  }
}

// A weight is zero if it has no digit but zeros: "q=0", "q=0.000".
bool is_zero_weight(std::string_view parameter) {
  const std::string text = lower_case(parameter);
  return text.starts_with("q=") && text.find_first_of("123456789") == std::string::npos;
}

}  // namespace

bool accepts_named(std::string_view list, std::string_view name) {
  return any_part(list, ',', [name](std::string_view range) {
    const size_t end = std::min(range.find(';'), range.size());
    return lower_case(trimmed(range.substr(0, end))) == name &&
           !any_part(range.substr(end), ';', is_zero_weight);
  });
}

bool lists_etag(std::string_view list, std::string_view etag) {
  return any_part(list, ',', [etag](std::string_view given) {
    if (given == "*") return true;
    if (given.starts_with("W/")) given.remove_prefix(2);
    return given == etag;
  });
}

}  // namespace skiff::page
