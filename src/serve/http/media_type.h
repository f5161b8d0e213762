// serve/http/media_type.h -- which bodies a POST may have, by its Content-Type.
#pragma once
#include <cstdint>
#include <optional>

#include "serve/http/server.h"

namespace skiff::http {

enum class MediaTypes : uint8_t {
  kJson,  // JSON, or what names no type
  // Any, for what is passed on. A web page of another origin may send forms and plain text without
  // a CORS preflight. So these need a header that tells who sends them: Origin or Sec-Fetch-Site,
  // which Cors::refuse() has judged, or a key, which no page sends without a preflight.
  kAny,
};

// Returns the 415 for a request whose body is none of `allowed`. Reads the head only.
std::optional<HttpResponse> refuse_media_type(const HttpRequest& request, MediaTypes allowed);

}  // namespace skiff::http
