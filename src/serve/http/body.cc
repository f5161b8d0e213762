#include "serve/http/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace skiff::http {
namespace {

constexpr int kMaxDigits = 16;
// Bounds on the bytes of chunk framing: a chunk of one byte needs five of them, so more than this
// is extensions or trailers that nobody needs.
constexpr uint64_t kMaxFraming = 64u << 10;
constexpr uint64_t kFramingFactor = 8;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

}  // namespace

BodyReader::BodyReader(const HttpRequest& request, size_t max_body) : max_body_(max_body) {
  chunked_ = !request.header("transfer-encoding").empty();
  if (chunked_) {
    state_ = State::kSize;
    return;
  }
  const std::string_view length = request.header("content-length");
  std::from_chars(length.data(), length.data() + length.size(), left_);
  if (left_ > max_body_)
    refuse(413, fmt::format("the body is larger than {} bytes", max_body_));
  else if (left_ > 0)
    state_ = State::kData;
}

void BodyReader::refuse(int status, std::string why) {
  refusal_ = {status, std::move(why)};
  state_ = State::kSize;  // not done
}

size_t BodyReader::take(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && !done() && refusal_.status == 0) {
    if (state_ != State::kData) {
      ++framing_;
      take_framing(bytes[at++]);
      continue;
    }
    const size_t part = std::min<uint64_t>(left_, bytes.size() - at);
    body_.append(bytes.substr(at, part));
    at += part;
    left_ -= part;
    if (left_ == 0) state_ = chunked_ ? State::kDataEnd : State::kDone;
  }
  return at;
}

bool BodyReader::expect(char c, char wanted, State next) {
  if (c == wanted)
    state_ = next;
  else
    refuse(400, "a chunk does not end where it says");
  return c == wanted;
}

void BodyReader::take_framing(char c) {
  if (framing_ > kMaxFraming + kFramingFactor * body_.size())
    return refuse(400, "the chunks carry more framing than body");
  switch (state_) {
    case State::kSize:
      return add_digit(c);
    case State::kExtension:
      if (c == '\r')
        state_ = State::kSizeEnd;
      else if (is_control(c))
        refuse(400, "a chunk extension has a byte that is not allowed there");
      return;
    case State::kSizeEnd:
      if (expect(c, '\n', State::kData)) begin_chunk();
      return;
    case State::kDataEnd:
      expect(c, '\r', State::kDataEnd2);
      return;
    case State::kDataEnd2:
      expect(c, '\n', State::kSize);
      return;
    case State::kTrailer:
    case State::kTrailerLine:
      if (c == '\r')
        state_ = state_ == State::kTrailer ? State::kLastEnd : State::kTrailerEnd;
      else if (is_control(c))
        refuse(400, "a trailer has a byte that is not allowed there");
      else
        state_ = State::kTrailerLine;
      return;
    case State::kTrailerEnd:
      expect(c, '\n', State::kTrailer);
      return;
    case State::kLastEnd:
      expect(c, '\n', State::kDone);
      return;
    case State::kData:
    case State::kDone:
      return;
  }
}

void BodyReader::add_digit(char c) {
  if (digits_ > 0 && (c == '\r' || c == ';')) {
    state_ = c == '\r' ? State::kSizeEnd : State::kExtension;
    return;
  }
  unsigned digit = 16;
  std::from_chars(&c, &c + 1, digit, 16);
  if (digit >= 16 || ++digits_ > kMaxDigits) return refuse(400, "a chunk has no valid size");
  left_ = left_ * 16 + digit;
}

void BodyReader::begin_chunk() {
  digits_ = 0;
  if (left_ == 0)
    state_ = State::kTrailer;
  else if (left_ > max_body_ - body_.size())
    refuse(413, fmt::format("the body is larger than {} bytes", max_body_));
}

}  // namespace skiff::http
