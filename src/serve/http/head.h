// serve/http/head.h -- the head of a request, read and judged. What two programs in a row could
// read differently (RFC 9112, sections 2.2, 3.2, 5.2, 6.1 and 11.2) is refused, not repaired, so
// that nothing can be smuggled past a proxy.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/server.h"

namespace skiff {

struct HttpRefusal {
  int status = 400;
  std::string why;
};

// Reads the head of a request from bytes that arrive in pieces, looking at each byte once. Refuses
// what the grammar does not have: bare CR or LF, control bytes, folded lines, a missing version.
class HeadReader {
 public:
  HeadReader(size_t max_bytes, int max_fields) : max_bytes_(max_bytes), max_fields_(max_fields) {}

  // `bytes` starts with the first byte of the head and has grown since the last call. False once
  // refusal() says why.
  bool look(std::string_view bytes);
  // Bytes of the head with its empty line; 0 while it is not complete.
  size_t size() const { return size_; }
  const HttpRefusal& refusal() const { return refusal_; }

  // What has been read so far: method, headers.
  HttpRequest& request() { return request_; }
  const std::string& target() const { return target_; }
  int minor() const { return minor_; }  // of HTTP/1.x: 0 or 1

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

// Judges a complete head. `minor` is 0 or 1, of HTTP/1.x; `method` and `headers` are read.
std::optional<HttpRefusal> refuse_fields(const HttpRequest& request, int minor);

// Whether a body follows; refuse_fields() has found nothing to refuse.
bool announces_body(const HttpRequest& request);

// Whether the client means to send another request after this one.
bool keeps_alive(const HttpRequest& request, int minor);

// Takes path, query and authority out of a target; false if it is no target for us.
bool split_target(std::string_view target, HttpRequest* request);

// Without spaces and tabs at its ends.
std::string_view trimmed(std::string_view text);

// Nothing if the escapes are wrong or hide control bytes.
std::optional<std::string> percent_decoded(std::string_view text);

// ASCII only.
std::string lower_case(std::string_view text);

}  // namespace skiff
