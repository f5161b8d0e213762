// serve/http/body.h -- the body of a request, with a Content-Length or chunked (RFC 9112,
// sections 6.2 and 7.1). Chunk extensions and trailers are parsed and dropped.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/http/head.h"

namespace skiff::http {

class BodyReader {
 public:
  // refuse_fields() has refused nothing in `request`.
  BodyReader(const HttpRequest& request, size_t max_body);

  // Consumes the part of `bytes` that belongs to the body and returns its size. Needs constant
  // memory besides the body; how the stream was cut into pieces makes no difference.
  size_t take(std::string_view bytes);
  bool done() const { return state_ == State::kDone; }
  const HttpRefusal& refusal() const { return refusal_; }  // status 0: none
  std::string& body() { return body_; }
  uint64_t wire() const { return body_.size() + framing_; }  // bytes consumed

 private:
  enum class State {
    kData,
    kSize,       // hexadecimal digits, at least one
    kExtension,  // from ';' to the end of the line
    kSizeEnd,    // LF
    kDataEnd,    // CR
    kDataEnd2,   // LF
    kTrailer,    // at the beginning of a line
    kTrailerLine,
    kTrailerEnd,  // LF
    kLastEnd,     // LF of the empty line
    kDone,
  };

  void take_framing(char c);
  void add_digit(char c);
  void begin_chunk();
  void refuse(int status, std::string why);
  bool expect(char c, char wanted, State next);

  const size_t max_body_;
  bool chunked_ = false;
  State state_ = State::kDone;
  uint64_t left_ = 0;  // bytes left of the body, or of the chunk
  int digits_ = 0;
  uint64_t framing_ = 0;
  std::string body_;
  HttpRefusal refusal_{.status = 0, .why = ""};
};

}  // namespace skiff::http
