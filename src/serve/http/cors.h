// serve/http/cors.h -- which web pages of other origins may use the server (the CORS protocol of
// the Fetch standard): those of the configured origins. Without origins no header is added to any
// response.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/http/server.h"

namespace skiff::http {

struct CorsConfig {
  std::vector<std::string> origins;  // "*" or exact origins, "https://host:port"; empty: off
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;  // not with the origin "*"
};

// Error::what names the flag.
Status check_cors(const CorsConfig& config);

// Immutable.
class Cors {
 public:
  // `config` has been checked.
  explicit Cors(CorsConfig config) : config_(std::move(config)) {}

  // Returns the answer to a preflight request, without headers(); nothing for other requests, or if
  // CORS is off.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;
  // Returns the 403 for a request from a page of another origin, unless that origin is allowed. The
  // same-origin policy keeps such a page from reading the answer, not from causing work. Browsers
  // send Origin with every cross-origin POST; a request without Origin comes from a page only if
  // Sec-Fetch-Site says so, and then reading (GET, HEAD) does no harm.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  // Headers to add to the response to `request`.
  HttpHeaders headers(const HttpRequest& request) const;

 private:
  bool allows(std::string_view origin) const;
  bool is_preflight(const HttpRequest& request) const;
  const CorsConfig config_;
};

}  // namespace skiff::http
