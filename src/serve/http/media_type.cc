#include "serve/http/media_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/log.h"
#include "serve/http/api_error.h"
#include "serve/http/head.h"

namespace skiff::http {
namespace {

constexpr std::array<std::string_view, 3> kWithoutPreflight{"text/plain", "multipart/form-data",
                                                            "application/x-www-form-urlencoded"};

bool is_json(std::string_view type) {
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

// A browser adds the schemes that it has asked its user for, such as Basic, to what pages send.
bool tells_sender(const HttpRequest& request) {
  const bool browser =
      !request.header("origin").empty() || !request.header("sec-fetch-site").empty();
  const bool key = !request.header("x-api-key").empty() ||
                   lower_case(request.header("authorization")).starts_with("bearer ");
  return browser || key;
}

HttpResponse not_json(std::string_view given) {
  return error_response(api_error(
      415, fmt::format("the Content-Type is {}, but this route takes JSON; send Content-Type: "
                       "application/json (with curl: -H 'Content-Type: application/json')",
                       escaped(given, 100))));
}

HttpResponse from_nobody(std::string_view given) {
  return error_response(api_error(
      415, fmt::format("the Content-Type is {}, which any web page may send; add the header "
                       "Authorization: Bearer KEY (any word is a KEY where none is required)",
                       escaped(given, 100))));
}

}  // namespace

std::optional<HttpResponse> refuse_media_type(const HttpRequest& request, MediaTypes allowed) {
  const std::string_view given = request.header("content-type");
  const std::string type = lower_case(trimmed(given.substr(0, given.find(';'))));
  if (given.empty() || is_json(type)) return std::nullopt;
  if (allowed == MediaTypes::kJson) return not_json(given);
  if (std::ranges::find(kWithoutPreflight, type) == kWithoutPreflight.end() ||
      tells_sender(request))
    return std::nullopt;
  return from_nobody(given);
}

}  // namespace skiff::http
