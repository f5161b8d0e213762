// route/forward.h -- headers on their way through the router: what a backend gets of a request's
// head, and what a client gets of a response's.
#pragma once
#include <string>

#include "route/response_reader.h"
#include "serve/http/server.h"

namespace skiff::route {

// Returns the head of the request to a backend, with its empty line. Headers of one connection
// are left out (RFC 9110, section 7.6.1); X-Request-Id and X-Forwarded-For are added. HEAD becomes
// GET: the edge leaves the body away. `key` replaces the client's keys unless it is empty. `extra`
// holds more lines, each with its end.
std::string forwarded_head(const http::HttpRequest& request, const std::string& authority,
                           size_t body_bytes, const std::string& key,
                           const std::string& extra = "");

// Returns status, type and headers of the response to the client, without a body.
http::HttpResponse returned_head(const ResponseHead& head);

}  // namespace skiff::route
