#include "serve/page/page.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "serve/page/accept.h"

namespace skiff::page {
namespace {

bool is_for_browsers(const http::HttpRequest& request) {
  return accepts_named(request.header("accept"), "text/html");
}

http::HttpResponse answer(const http::HttpRequest& request) {
  const PageBytes& page = page_bytes();
  const bool gzip = accepts_named(request.header("accept-encoding"), "gzip");
  // Two encodings are two representations, which a strong validator must tell apart.
  const std::string etag = fmt::format("\"{}{}\"", page.etag, gzip ? "-gzip" : "");
  http::HttpResponse response{
      .status = 200,
      .content_type = "text/html; charset=utf-8",
      .headers = {{"ETag", etag},
                  {"Cache-Control", "no-cache"},  // asks again each time, which costs a 304
                  {"Vary", "Accept, Accept-Encoding"},
                  {"Content-Security-Policy", std::string(page.policy)},
                  {"Cross-Origin-Opener-Policy", "same-origin"},
                  {"Cross-Origin-Resource-Policy", "same-origin"},
                  {"Referrer-Policy", "no-referrer"},
                  {"X-Content-Type-Options", "nosniff"}}};
  if (lists_etag(request.header("if-none-match"), etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  if (gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = gzip ? page.gzip : page.html;
  return response;
}

}  // namespace

http::Route page_route() {
  return {.method = "GET",
          .path = "/",
          .handler =
              [](const http::HttpRequest& request, const std::shared_ptr<http::HttpReply>& reply) {
                reply->send(answer(request));
              },
          .access = http::Access::kPublic,
          .applies = is_for_browsers};
}

}  // namespace skiff::page
