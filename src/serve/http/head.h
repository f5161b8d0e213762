// serve/http/head.h -- the head of a request: parsing and checks. Whatever a proxy and this server
// could read differently (RFC 9112, sections 2.2, 3.2, 5.2, 6.1 and 11.2) is refused, not repaired,
// so that no request can be smuggled past a proxy.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/server.h"

namespace skiff::http {

struct HttpRefusal {
  int status = 400;
  std::string why;
};

// Parses the head of a request from bytes that arrive in pieces, each byte once. Refuses what the
// grammar does not allow: bare CR or LF, control bytes, folded lines, a missing version.
class HeadReader {
 public:
  HeadReader(size_t max_bytes, int max_fields) : max_bytes_(max_bytes), max_fields_(max_fields) {}

  // `bytes` starts with the first byte of the head and has grown since the last call. False once
  // the head is refused; see refusal().
  bool look(std::string_view bytes);
  // Size of the head with its empty line; 0 while it is not complete.
  size_t size() const { return size_; }
  const HttpRefusal& refusal() const { return refusal_; }

  // The request as parsed so far: method, headers.
  HttpRequest& request() { return request_; }
  const std::string& target() const { return target_; }
  int minor() const { return minor_; }  // x of HTTP/1.x: 0 or 1

 private:
  bool refuse(int status, std::string why);
  bool end_line(std::string_view line);
  bool take_request_line(std::string_view line);
  bool take_field(std::string_view line);

  const size_t max_bytes_;
  const int max_fields_;
  size_t at_ = 0, line_ = 0, size_ = 0;
  int lines_ = 0, minor_ = 1;
  HttpRequest request_;
  std::string target_;
  HttpRefusal refusal_;
};

// Checks method and headers of a complete head. `minor` is the x of HTTP/1.x: 0 or 1.
std::optional<HttpRefusal> refuse_fields(const HttpRequest& request, int minor);

// Returns whether requests of this method have a body by their nature: POST, PUT and PATCH.
bool has_content(std::string_view method);

// Returns whether a body follows. Requires that refuse_fields() has refused nothing.
bool announces_body(const HttpRequest& request);

// Returns whether the connection stays open for another request after this one.
bool keeps_alive(const HttpRequest& request, int minor);

// Splits a target into path, query and authority; false if the target is not valid.
bool split_target(std::string_view target, HttpRequest* request);

// Removes spaces and tabs at both ends.
std::string_view trimmed(std::string_view text);

// Nothing if an escape is malformed or stands for a control byte.
std::optional<std::string> percent_decoded(std::string_view text);

// ASCII only.
std::string lower_case(std::string_view text);

}  // namespace skiff::http
