#include "serve/queue/messages.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "serve/http/cache_part.h"

namespace skiff::queue {
namespace {

constexpr char kVersion = 1, kPiece = 'P';
constexpr std::array<std::string_view, 2> kPassed{"traceparent", "tracestate"};
enum Flags : uint8_t { kBegins = 1, kStreams = 2, kEnds = 4, kAllFlags = 7 };

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}
void put(std::string& out, std::string_view text) {
  put(out, text.size(), 4);
  out += text;
}

// Reads what put() wrote. After the first error every value is empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t number(int bytes) {
    const std::string_view raw = take(static_cast<size_t>(bytes));
    uint64_t value = 0;
    for (size_t i = 0; i < raw.size(); ++i)
      value |= uint64_t{static_cast<uint8_t>(raw[i])} << (8 * i);
    return value;
  }
  std::string text(size_t bound) {
    const uint64_t size = number(4);
    if (size > bound) fail(fmt::format("a text of {} bytes, more than {}", size, bound));
    return std::string(take(size));
  }
  void fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    bytes_ = {};
  }
  bool failed() const { return !why_.empty(); }
  // The error, or one if anything is left.
  Status done() {
    if (!failed() && !bytes_.empty()) fail(fmt::format("{} bytes too many", bytes_.size()));
    if (failed()) return Error{Code::kInvalid, "a message of the shared queue: " + why_};
    return ok();
  }

 private:
  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) fail("it is cut");
    if (failed()) return {};
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
  std::string why_;
};

void put_headers(std::string& out, const http::HttpHeaders& headers) {
  put(out, headers.size(), 2);
  for (const auto& [name, value] : headers) {
    put(out, name);
    put(out, value);
  }
}

// A line break in a header would begin another one.
bool is_one_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

http::HttpHeaders read_headers(Reader& reader) {
  const uint64_t count = reader.number(2);
  if (count > kMaxHeaders) reader.fail(fmt::format("{} headers", count));
  http::HttpHeaders headers;
  for (uint64_t i = 0; i < count && !reader.failed(); ++i) {
    std::string name = reader.text(kMaxName);
    std::string value = reader.text(kMaxHeader);
    if (name.empty() || !is_one_line(name) || !is_one_line(value))
      reader.fail("a header that is none");
    headers.emplace_back(std::move(name), std::move(value));
  }
  return headers;
}

Result<Message> read_piece(std::string_view bytes) {
  Reader reader(bytes);
  Piece piece;
  piece.lease.id = reader.text(kMaxName);
  const uint64_t number = reader.number(8);
  if (number > INT64_MAX) reader.fail("a number that no lease has");
  piece.lease.number = static_cast<int64_t>(number & INT64_MAX);
  piece.index = static_cast<uint32_t>(reader.number(4));
  const uint64_t flags = reader.number(1);
  if (flags & ~uint64_t{kAllFlags}) reader.fail("unknown flags");
  piece.begins = flags & kBegins;
  piece.streams = flags & kStreams;
  piece.ends = flags & kEnds;
  if (piece.begins) {
    piece.head.status = static_cast<int>(reader.number(2));
    piece.head.content_type = reader.text(kMaxName);
    if (!is_one_line(piece.head.content_type)) reader.fail("a media type that is none");
    if (!reader.failed() && (piece.head.status < 200 || piece.head.status > 599))
      reader.fail(fmt::format("a status {}", piece.head.status));
    piece.head.headers = read_headers(reader);
  }
  piece.bytes = reader.text(kMaxPiece);
  if (const Status good = reader.done(); !good) return good.error();
  return Message(std::move(piece));
}

Result<Message> read_note(Note::Kind kind, std::string_view bytes) {
  Note note{.kind = kind, .lease = {}};
  const bool rings = kind == Note::Kind::kRing;
  if (rings && bytes.empty()) return Message(note);
  const char* end = bytes.data() + bytes.size();
  const auto [stop, error] = std::from_chars(bytes.data(), end, note.lease.number);
  if (rings || error != std::errc() || stop == end || *stop != ' ' || note.lease.number < 0 ||
      bytes.size() > kMaxName)
    return Error{Code::kInvalid, "a message of the shared queue: a note that is none"};
  note.lease.id.assign(stop + 1, end);
  return Message(std::move(note));
}

}  // namespace

std::string write_request(const http::HttpRequest& request, const std::string& cache_part) {
  std::string out(1, kVersion);
  for (const std::string* text : {&request.method, &request.path, &request.query,
                                  &request.request_id, &request.client, &cache_part})
    put(out, *text);
  http::HttpHeaders passed;
  for (const std::string_view name : kPassed)
    if (const std::string_view value = request.header(name); !value.empty())
      passed.emplace_back(name, value);
  put_headers(out, passed);
  put(out, request.body);
  return out;
}

Result<http::HttpRequest> read_request(std::string_view bytes, size_t max_body) {
  Reader reader(bytes);
  if (reader.number(1) != kVersion) reader.fail("another version");
  http::HttpRequest request;
  request.method = reader.text(kMaxName);
  request.path = reader.text(kMaxHeader);
  request.query = reader.text(kMaxHeader);
  request.request_id = reader.text(kMaxName);
  request.client = reader.text(kMaxName);
  const std::string cache_part = reader.text(kMaxName);
  request.headers = read_headers(reader);
  request.headers.emplace(request.headers.begin(), http::kCachePart, cache_part);
  request.body = reader.text(max_body);
  if (!reader.failed() && http::sane_request_id(request.request_id) != request.request_id)
    reader.fail("an id that is none");
  if (const Status good = reader.done(); !good) return good.error();
  return request;
}

std::string write_piece(const Piece& piece) {
  SKIFF_CHECK(piece.bytes.size() <= kMaxPiece);
  std::string out(1, kPiece);
  put(out, piece.lease.id);
  put(out, static_cast<uint64_t>(piece.lease.number), 8);
  put(out, piece.index, 4);
  put(out, (piece.begins ? kBegins : 0) | (piece.streams ? kStreams : 0) | (piece.ends ? kEnds : 0),
      1);
  if (piece.begins) {
    put(out, static_cast<uint64_t>(piece.head.status), 2);
    put(out, piece.head.content_type);
    put_headers(out, piece.head.headers);
  }
  put(out, piece.bytes);
  return out;
}

std::string write_note(const Note& note) {
  std::string out(1, static_cast<char>(note.kind));
  if (note.kind != Note::Kind::kRing) out += fmt::format("{} {}", note.lease.number, note.lease.id);
  return out;
}

Result<Message> read_message(std::string_view bytes) {
  if (bytes.empty()) return Error{Code::kInvalid, "a message of the shared queue: it is empty"};
  const std::string_view rest = bytes.substr(1);
  switch (bytes.front()) {
    case kPiece:
      return read_piece(rest);
    case 'R':
      return read_note(Note::Kind::kRing, rest);
    case 'T':
      return read_note(Note::Kind::kTaken, rest);
    case 'B':
      return read_note(Note::Kind::kBack, rest);
    case 'S':
      return read_note(Note::Kind::kStop, rest);
    default:
      return Error{Code::kInvalid, "a message of the shared queue: an unknown kind"};
  }
}

}  // namespace skiff::queue
