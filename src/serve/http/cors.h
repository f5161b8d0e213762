// serve/http/cors.h -- which web pages of other origins may use the server: those of the origins
// that are named (the CORS protocol of the Fetch standard), and no others. Without origins nothing
// is added to any response.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/http/server.h"

namespace skiff {

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

  // The answer to a preflight request, without its headers(); nothing if it is none, or CORS is
  // off.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;
  // The 403 for a request that a page of another origin made, unless that origin is allowed. The
  // Same Origin Policy keeps such a page from reading the answer, not from having work done.
  // Browsers name the origin of every POST across origins; a request without Origin is no page's
  // unless Sec-Fetch-Site says so, and reading (GET, HEAD) does no harm then.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;
  // What the response to `request` carries besides.
  HttpHeaders headers(const HttpRequest& request) const;

 private:
  bool allows(std::string_view origin) const;
  bool is_preflight(const HttpRequest& request) const;
  const CorsConfig config_;
};

}  // namespace skiff
