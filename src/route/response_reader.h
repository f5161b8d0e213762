// route/response_reader.h -- reads a backend's HTTP/1.1 response from bytes that arrive in pieces.
// What two readers could understand differently (RFC 9112, sections 6 and 7) is refused, so that a
// response cannot be taken for two.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/http/server.h"

namespace skiff::route {

struct ResponseHead {
  int status = 0;
  http::HttpHeaders headers;                                        // names in lower case
  std::string_view header(std::string_view lower_case_name) const;  // empty if absent
};

class ResponseReader {
 public:
  static constexpr size_t kMaxHead = size_t{64} << 10;
  static constexpr int kMaxFields = 200;

  // Takes what belongs to the response and appends the bytes of its body, without framing, to
  // `body`. Returns the number of bytes taken: all, unless the response is done or refused. How the
  // stream was cut into pieces makes no difference. Interim responses (1xx) are skipped.
  size_t take(std::string_view bytes, std::string* body);
  // Tells that the peer has closed the connection, which ends a response without a length and is a
  // fault in any other.
  void end();

  bool has_head() const { return state_ >= State::kData; }
  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }
  const std::string& why() const { return why_; }  // once failed
  bool began() const { return began_; }            // a byte has arrived
  const ResponseHead& head() const { return head_; }
  // Returns the bytes of the body that are still to come where its length was told, else -1.
  int64_t left() const { return framing_ == Framing::kLength ? static_cast<int64_t>(left_) : -1; }
  // Returns true if the connection may carry another request once this response is done.
  bool keeps_alive() const { return keep_alive_ && framing_ != Framing::kUntilClosed; }

 private:
  enum class State {
    kFailed,
    kHead,
    kData,
    kSize,
    kExtension,
    kSizeEnd,
    kDataEnd,
    kDataEnd2,
    kTrailer,
    kTrailerEnd,
    kDone
  };
  enum class Framing { kNone, kLength, kChunked, kUntilClosed };

  void fail(std::string why);
  size_t take_head(std::string_view bytes);
  size_t take_data(std::string_view bytes, std::string* body);
  void take_framing(char c);
  void take_digit(char c);
  void begin_body();
  bool parse_head();
  bool parse_status(std::string_view line);
  bool parse_field(std::string_view line);
  bool choose_framing();

  State state_ = State::kHead;
  Framing framing_ = Framing::kNone;
  ResponseHead head_;
  std::string text_;  // the head, or a line of the trailer, as far as it has come
  std::string why_;
  uint64_t left_ = 0;
  int digits_ = 0, interim_ = 0;
  size_t framing_bytes_ = 0;  // size of chunk extensions and trailers
  bool began_ = false, keep_alive_ = true;
};

}  // namespace skiff::route
