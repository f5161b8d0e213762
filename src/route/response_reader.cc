#include "route/response_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "serve/http/head.h"

namespace skiff::route {
namespace {

constexpr int kMaxDigits = 15;          // digits of a chunk's size
constexpr size_t kMaxLength = 18;       // digits of a Content-Length
constexpr int kMaxInterim = 16;         // responses 1xx before the response
constexpr size_t kMaxExtra = 64 << 10;  // bytes of chunk extensions and trailers

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

bool is_token(char c) {
  static constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view ResponseHead::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

void ResponseReader::fail(std::string why) {
  state_ = State::kFailed;
  why_ = std::move(why);
}

size_t ResponseReader::take(std::string_view bytes, std::string* body) {
  began_ |= !bytes.empty();
  size_t at = 0;
  while (at < bytes.size() && !done() && !failed()) {
    if (state_ == State::kHead)
      at += take_head(bytes.substr(at));
    else if (state_ == State::kData)
      at += take_data(bytes.substr(at), body);
    else
      take_framing(bytes[at++]);
  }
  return at;
}

void ResponseReader::end() {
  if (done() || failed()) return;
  if (state_ == State::kData && framing_ == Framing::kUntilClosed) {
    state_ = State::kDone;
    return;
  }
  fail(began_ ? "it closed the connection within a response"
              : "it closed the connection without a response");
}

// Collects lines up to the empty one.
size_t ResponseReader::take_head(std::string_view bytes) {
  const size_t line = bytes.find('\n');
  const size_t part = line == std::string_view::npos ? bytes.size() : line + 1;
  if (text_.size() + part > kMaxHead) {
    fail(fmt::format("the head of its response is larger than {} bytes", kMaxHead));
    return part;
  }
  text_.append(bytes.substr(0, part));
  if (!text_.ends_with("\r\n\r\n")) return part;
  if (!parse_head()) {
    if (!failed()) fail("the head of its response is not HTTP/1.1");
    return part;
  }
  text_.clear();
  if (head_.status < 200) {  // the response is still to come
    if (head_.status == 101 || ++interim_ > kMaxInterim)
      fail("it answered 1xx instead of a response");
    head_ = {};
    return part;
  }
  begin_body();
  return part;
}

bool ResponseReader::parse_head() {
  std::string_view text = text_;
  text.remove_suffix(2);
  bool first = true;
  head_ = {};
  while (!text.empty()) {
    const size_t end = text.find("\r\n");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (std::any_of(line.begin(), line.end(), is_control)) return false;
    if (!(first ? parse_status(line) : parse_field(line))) return false;
    first = false;
  }
  return !first && choose_framing();
}

// Reads "HTTP/1.x 200 OK"; the reason may be missing.
bool ResponseReader::parse_status(std::string_view line) {
  static constexpr std::string_view kVersion = "HTTP/1.";
  static constexpr size_t kCode = 9, kEnd = 12;
  if (line.size() < kEnd || !line.starts_with(kVersion) || line[8] != ' ' ||
      (line.size() > kEnd && line[kEnd] != ' '))
    return false;
  const std::string_view code = line.substr(kCode, kEnd - kCode);
  if ((line[7] != '0' && line[7] != '1') || !std::all_of(code.begin(), code.end(), is_digit) ||
      code[0] == '0' || code[0] > '5')
    return false;
  keep_alive_ = line[7] == '1';
  std::from_chars(code.data(), code.data() + code.size(), head_.status);
  return true;
}

bool ResponseReader::parse_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 ||
      !std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_token))
    return false;
  if (head_.headers.size() >= kMaxFields) return false;
  head_.headers.emplace_back(http::lower_case(line.substr(0, colon)),
                             std::string(http::trimmed(line.substr(colon + 1))));
  return true;
}

bool ResponseReader::choose_framing() {
  const std::string_view length = head_.header("content-length");
  const std::string_view coding = head_.header("transfer-encoding");
  int lengths = 0, codings = 0;
  for (const auto& [name, value] : head_.headers) {
    lengths += name == "content-length" ? 1 : 0;
    codings += name == "transfer-encoding" ? 1 : 0;
    if (name == "connection" && http::lower_case(value).find("close") != std::string::npos)
      keep_alive_ = false;
  }
  if (lengths + codings > 1) return false;
  if (codings == 1) {
    framing_ = Framing::kChunked;
    return http::lower_case(coding) == "chunked";
  }
  if (lengths == 0) {
    framing_ = Framing::kUntilClosed;
    return true;
  }
  if (length.empty() || length.size() > kMaxLength ||
      !std::all_of(length.begin(), length.end(), is_digit))
    return false;
  std::from_chars(length.data(), length.data() + length.size(), left_);
  framing_ = Framing::kLength;
  return true;
}

void ResponseReader::begin_body() {
  if (head_.status == 204 || head_.status == 304) {
    framing_ = Framing::kNone;
    left_ = 0;
    state_ = State::kDone;
  } else if (framing_ == Framing::kLength && left_ == 0) {
    state_ = State::kDone;
  } else {
    state_ = framing_ == Framing::kChunked ? State::kSize : State::kData;
  }
}

size_t ResponseReader::take_data(std::string_view bytes, std::string* body) {
  if (framing_ == Framing::kUntilClosed) {
    body->append(bytes);
    return bytes.size();
  }
  const size_t part = std::min<uint64_t>(left_, bytes.size());
  body->append(bytes.substr(0, part));
  left_ -= part;
  if (left_ == 0) state_ = framing_ == Framing::kChunked ? State::kDataEnd : State::kDone;
  return part;
}

void ResponseReader::take_framing(char c) {
  const auto expect = [&](char wanted, State next) {
    if (c == wanted)
      state_ = next;
    else
      fail("a chunk of its response does not end where it says");
  };
  switch (state_) {
    case State::kSize:
      return take_digit(c);
    case State::kExtension:
      if (c == '\r')
        state_ = State::kSizeEnd;
      else if (is_control(c) || ++framing_bytes_ > kMaxExtra)
        fail("a chunk of its response has an extension that is not valid");
      return;
    case State::kSizeEnd:
      digits_ = 0;
      return expect('\n', left_ == 0 ? State::kTrailer : State::kData);
    case State::kDataEnd:
      return expect('\r', State::kDataEnd2);
    case State::kDataEnd2:
      return expect('\n', State::kSize);
    case State::kTrailer:
      if (c == '\r') {
        state_ = State::kTrailerEnd;
      } else if (is_control(c) || ++framing_bytes_ > kMaxExtra) {
        fail("a trailer of its response is not valid");
      } else {
        text_ = "x";  // the line is not empty
      }
      return;
    case State::kTrailerEnd:
      expect('\n', text_.empty() ? State::kDone : State::kTrailer);
      text_.clear();
      return;
    case State::kFailed:
    case State::kHead:
    case State::kData:
    case State::kDone:
      return;
  }
}

void ResponseReader::take_digit(char c) {
  if (digits_ > 0 && (c == '\r' || c == ';')) {
    state_ = c == '\r' ? State::kSizeEnd : State::kExtension;
    return;
  }
  unsigned digit = 16;
  std::from_chars(&c, &c + 1, digit, 16);
  if (digit >= 16 || ++digits_ > kMaxDigits)
    return fail("a chunk of its response has no valid size");
  left_ = left_ * 16 + digit;
}

}  // namespace skiff::route
