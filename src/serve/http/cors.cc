#include "serve/http/cors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "serve/http/api_error.h"
#include "serve/http/head.h"

namespace skiff::http {
namespace {

constexpr std::string_view kAny = "*";
constexpr size_t kMaxAsked = 1024;  // bytes of the list of requested header names

bool has(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

bool is_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_';
}

bool are_names(std::string_view text) {
  return text.size() <= kMaxAsked && std::all_of(text.begin(), text.end(), [](char c) {
           return is_name(c) || c == ',' || c == ' ';
         });
}

Error refusal(const char* flag, const std::string& value, const char* why) {
  return {Code::kInvalid, fmt::format("--{} {}: {}", flag, escaped(value), why), flag};
}

// scheme://host or scheme://host:port, as browsers send it.
bool is_origin(const std::string& text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(scheme) + 3, text.end(), [](char c) {
    return is_name(c) || c == '.' || c == ':' || c == '[' || c == ']';
  });
}

// Host and port of an http or https origin, in the form of a Host header.
std::string authority_of(std::string_view origin) {
  std::string text = lower_case(origin);
  for (const auto& [scheme, port] :
       {std::pair<std::string_view, std::string_view>{"http://", ":80"}, {"https://", ":443"}}) {
    if (!text.starts_with(scheme)) continue;
    text.erase(0, scheme.size());
    if (text.ends_with(port)) text.resize(text.size() - port.size());
    return text;
  }
  return {};
}

// Whether the page came from the host and port that the request was sent to. A proxy may have
// terminated TLS on the way, so the scheme does not count.
bool is_own_origin(std::string_view origin, const HttpRequest& request) {
  const std::string_view host =
      request.authority.empty() ? request.header("host") : std::string_view(request.authority);
  const std::string own = authority_of(origin);
  const std::string_view scheme = origin.substr(0, origin.find("://") + 3);
  return !own.empty() && own == authority_of(std::string(scheme) + std::string(host));
}

HttpResponse not_allowed(std::string_view origin) {
  ApiError error = api_error(
      403,
      fmt::format("web pages of the origin {} may not use this server; --allowed-origins {} "
                  "would let them",
                  escaped(origin, 100), origin == "(not named)" ? "ORIGIN" : escaped(origin, 100)));
  error.type = "permission_error";
  error.code = "origin_not_allowed";
  return error_response(error);
}

}  // namespace

Status check_cors(const CorsConfig& config) {
  for (const std::string& origin : config.origins)
    if (origin != kAny && origin != "null" && !is_origin(origin))
      return refusal("allowed-origins", origin,
                     "an origin is *, or like https://example.org:8443 without a path");
  if (config.credentials && has(config.origins, kAny))
    return refusal("allow-credentials", "true",
                   "cannot be with --allowed-origins *: name the origins that may send cookies");
  for (const std::string& method : config.methods)
    if (method != kAny && !are_names(method))
      return refusal("allowed-methods", method,
                     "this is not the name of a method; give one like POST, or *");
  for (const std::string& header : config.headers)
    if (header != kAny && !are_names(header))
      return refusal("allowed-headers", header,
                     "this is not the name of a header; give one like x-api-key, or *");
  return ok();
}

bool Cors::allows(std::string_view origin) const {
  return has(config_.origins, kAny) || has(config_.origins, origin);
}

bool Cors::is_preflight(const HttpRequest& request) const {
  return !config_.origins.empty() && request.method == "OPTIONS" &&
         !request.header("origin").empty() &&
         !request.header("access-control-request-method").empty();
}

std::optional<HttpResponse> Cors::preflight(const HttpRequest& request) const {
  if (!is_preflight(request)) return std::nullopt;
  if (allows(request.header("origin"))) return HttpResponse{.status = 204, .content_type = ""};
  return not_allowed(request.header("origin"));
}

std::optional<HttpResponse> Cors::refuse(const HttpRequest& request) const {
  const std::string_view site = request.header("sec-fetch-site");
  const std::string_view origin = request.header("origin");
  if (site == "same-origin") return std::nullopt;
  if (!origin.empty()) {
    if (allows(origin) || is_own_origin(origin, request)) return std::nullopt;
    return not_allowed(origin);
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads || site.empty() || site == "none" || has(config_.origins, kAny)) return std::nullopt;
  return not_allowed("(not named)");
}

HttpHeaders Cors::headers(const HttpRequest& request) const {
  if (config_.origins.empty()) return {};
  HttpHeaders out{{"Vary", "Origin"}};
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !allows(origin)) return out;
  const bool any = has(config_.origins, kAny);
  out.emplace_back("Access-Control-Allow-Origin", any ? kAny : origin);
  if (config_.credentials) out.emplace_back("Access-Control-Allow-Credentials", "true");
  if (!is_preflight(request)) {
    out.emplace_back("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
    return out;
  }
  // "*" would not cover Authorization, so each requested header is allowed by its name.
  const std::string_view asked = request.header("access-control-request-headers");
  const bool echo = has(config_.headers, kAny) && are_names(asked);
  out.emplace_back("Access-Control-Allow-Methods",
                   has(config_.methods, kAny) ? "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
                                              : listed(config_.methods));
  if (!echo || !asked.empty())
    out.emplace_back("Access-Control-Allow-Headers",
                     echo ? std::string(asked) : listed(config_.headers));
  out.emplace_back("Access-Control-Max-Age", "600");
  return out;
}

}  // namespace skiff::http
