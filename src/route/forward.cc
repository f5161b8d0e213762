#include "route/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "fetch/url.h"
#include "serve/http/head.h"

namespace skiff::route {
namespace {

constexpr std::array<std::string_view, 10> kHops{"connection",
                                                 "keep-alive",
                                                 "proxy-authenticate",
                                                 "proxy-authorization",
                                                 "proxy-connection",
                                                 "te",
                                                 "trailer",
                                                 "transfer-encoding",
                                                 "upgrade",
                                                 "content-length"};
// The router writes these itself.
constexpr std::array<std::string_view, 6> kRewritten{"host",
                                                     "expect",
                                                     "x-request-id",
                                                     "x-forwarded-for",
                                                     "x-router-prefill-url",
                                                     "x-router-decode-url"};
constexpr std::array<std::string_view, 2> kKeys{"authorization", "x-api-key"};
constexpr std::array<std::string_view, 3> kOfTheEdge{"content-type", "date", "x-request-id"};

template <size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns true if a header Connection names this one.
bool named_by_connection(const http::HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (http::lower_case(http::trimmed(rest.substr(0, comma))) == name) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

// Returns the address of a client that is given as ADDRESS:PORT.
std::string_view without_port(std::string_view client) {
  return client.substr(0, client.rfind(':'));
}

}  // namespace

std::string forwarded_head(const http::HttpRequest& request, const std::string& authority,
                           size_t body_bytes, const std::string& key, const std::string& extra) {
  std::string head = fmt::format("{} {}{}{} HTTP/1.1\r\nHost: {}\r\n",
                                 request.method == "HEAD" ? "GET" : request.method,
                                 fetch::encoded_path(request.path),
                                 request.query.empty() ? "" : "?", request.query, authority);
  auto out = std::back_inserter(head);
  std::string forwarded;
  for (const auto& [name, value] : request.headers) {
    if (name == "x-forwarded-for") forwarded += value + ", ";
    if (among(kHops, name) || among(kRewritten, name)) continue;
    if (!key.empty() && among(kKeys, name)) continue;
    if (named_by_connection(request.headers, name)) continue;
    fmt::format_to(out, "{}: {}\r\n", name, value);
  }
  if (!key.empty()) fmt::format_to(out, "Authorization: Bearer {}\r\n", key);
  if (body_bytes > 0 || http::has_content(request.method))
    fmt::format_to(out, "Content-Length: {}\r\n", body_bytes);
  fmt::format_to(out, "X-Request-Id: {}\r\nX-Forwarded-For: {}{}\r\n{}\r\n", request.request_id,
                 forwarded, without_port(request.client), extra);
  return head;
}

http::HttpResponse returned_head(const ResponseHead& head) {
  http::HttpResponse response{
      .status = head.status, .body = "", .content_type = std::string(head.header("content-type"))};
  for (const auto& [name, value] : head.headers)
    if (!among(kHops, name) && !among(kOfTheEdge, name) && !named_by_connection(head.headers, name))
      response.headers.emplace_back(name, value);
  return response;
}

}  // namespace skiff::route
