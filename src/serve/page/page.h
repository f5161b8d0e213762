// serve/page/page.h -- the web page at "/": a chat with the served model and a view of the server's
// load. It is one HTML file with its script and style inside, made from the sources of this folder
// by cmake/embed_page.cmake, and asks nothing of any other server.
#pragma once
#include <string_view>

#include "serve/http/route_table.h"

namespace skiff::page {

// The page as it is served. All views are of constants of the program.
struct PageBytes {
  std::string_view html;    // the whole page
  std::string_view gzip;    // the same, compressed
  std::string_view etag;    // 16 hexadecimal digits of a SHA-256 of `html`
  std::string_view policy;  // Content-Security-Policy, with the hashes of the script and the style
};
const PageBytes& page_bytes();

// The route GET /, for browsers: requests whose Accept names text/html, which clients of the API do
// not send. Other requests for "/" are left to other routes. The page is the same for everybody and
// holds no secret, so it needs no key; what it shows, it asks the server for with its user's key.
http::Route page_route();

}  // namespace skiff::page
