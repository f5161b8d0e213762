// serve/page/accept.h -- the lists of Accept, Accept-Encoding and If-None-Match (RFC 9110, 12.5 and
// 13.1.2), as far as one page in two encodings needs them.
#pragma once
#include <string_view>

namespace skiff::page {

// Returns whether a list like "text/html, */*;q=0.8" has `name` itself, in any case of letters,
// with a weight above 0. Wildcards do not count: "*/*" is what clients send that want no page.
bool accepts_named(std::string_view list, std::string_view name);

// Returns whether If-None-Match is "*" or lists `etag`, weak or strong. `etag` includes its quotes.
bool lists_etag(std::string_view list, std::string_view etag);

}  // namespace skiff::page
