#include "serve/http/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

namespace skiff::http {
namespace {

constexpr std::string_view kVersion = "HTTP/1.";

constexpr size_t kMaxLengthDigits = 19;  // any number of 19 digits fits a uint64_t

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_token(char c) {
  static constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int count(const HttpRequest& request, std::string_view name) {
  return static_cast<int>(std::count_if(request.headers.begin(), request.headers.end(),
                                        [&](const auto& header) { return header.first == name; }));
}

std::optional<HttpRefusal> refuse_framing(const HttpRequest& request, int minor) {
  const int lengths = count(request, "content-length");
  const int codings = count(request, "transfer-encoding");
  if (lengths > 1 || codings > 1)
    return HttpRefusal{400, "Content-Length or Transfer-Encoding is given more than once"};
  if (lengths + codings > 1)
    return HttpRefusal{400, "Content-Length and Transfer-Encoding exclude each other"};
  const std::string_view length = request.header("content-length");
  if (lengths == 1 && (length.empty() || length.size() > kMaxLengthDigits ||
                       !std::all_of(length.begin(), length.end(), is_digit)))
    return HttpRefusal{400, "Content-Length is not a number of bytes"};
  if (codings == 0) return std::nullopt;
  if (minor == 0) return HttpRefusal{400, "HTTP/1.0 has no Transfer-Encoding"};
  if (lower_case(request.header("transfer-encoding")) != "chunked")
    return HttpRefusal{400, "the only Transfer-Encoding that is understood is chunked"};
  return std::nullopt;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

std::string sane_request_id(std::string_view given) {
  const auto sane = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.' || c == ':' || c == '/' || c == '=' || c == '+';
  };
  if (!given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), sane))
    return std::string(given);
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return out;
}

bool HeadReader::refuse(int status, std::string why) {
  refusal_ = {status, std::move(why)};
  return false;
}

bool HeadReader::look(std::string_view bytes) {
  for (; at_ < bytes.size() && size_ == 0; ++at_) {
    if (at_ >= max_bytes_)
      return refuse(431, fmt::format("the header is larger than {} bytes", max_bytes_));
    const char c = bytes[at_];
    const bool after_return = at_ > line_ && bytes[at_ - 1] == '\r';
    if (after_return != (c == '\n')) return refuse(400, "a line does not end with CR LF");
    if (after_return) {
      if (!end_line(bytes.substr(line_, at_ - 1 - line_))) return false;
      line_ = at_ + 1;
    } else if (c != '\r' && (is_control(c) || (lines_ == 0 && (c & 0x80)))) {
      return refuse(400, "the request line or a header has a byte that is not allowed there");
    }
  }
  return true;
}

bool HeadReader::end_line(std::string_view line) {
  if (lines_++ == 0) return take_request_line(line);
  if (!line.empty()) return take_field(line);
  size_ = at_ + 1;
  return true;
}

// "METHOD target HTTP/1.x" with one space at each place.
bool HeadReader::take_request_line(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (first == 0 || second == std::string_view::npos || second == first + 1 ||
      !std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(first), is_token))
    return refuse(400, "the request does not begin with \"METHOD /path HTTP/1.1\"");
  const std::string_view version = line.substr(second + 1);
  if (version.size() != kVersion.size() + 1 || !version.starts_with(kVersion) ||
      (version.back() != '0' && version.back() != '1'))
    return refuse(400, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  request_.method = std::string(line.substr(0, first));
  target_ = std::string(line.substr(first + 1, second - first - 1));
  minor_ = version.back() - '0';
  return true;
}

bool HeadReader::take_field(std::string_view line) {
  if (line[0] == ' ' || line[0] == '\t')
    return refuse(400, "a header continues on a second line; send it on one line");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 ||
      !std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_token))
    return refuse(400, "a header line is not \"name: value\"");
  if (lines_ - 1 > max_fields_)
    return refuse(431, fmt::format("there are more than {} headers", max_fields_));
  request_.headers.emplace_back(lower_case(line.substr(0, colon)),
                                std::string(trimmed(line.substr(colon + 1))));
  return true;
}

std::optional<HttpRefusal> refuse_fields(const HttpRequest& request, int minor) {
  if (request.method == "CONNECT" || request.method == "TRACE")
    return HttpRefusal{405, fmt::format("{} is never allowed here", request.method)};
  const int hosts = count(request, "host");
  if (hosts > 1 || (hosts == 0 && minor == 1))
    return HttpRefusal{400, "the request must have exactly one Host header"};
  if (auto refused = refuse_framing(request, minor)) return refused;
  const std::string coding = lower_case(request.header("content-encoding"));
  if (!coding.empty() && coding != "identity")
    return HttpRefusal{415, "Content-Encoding is not supported; send the body as it is"};
  if (minor == 0) return std::nullopt;  // HTTP/1.0 has no expectations, so they are ignored
  const std::string_view expect = request.header("expect");
  if (!expect.empty() && lower_case(expect) != "100-continue")
    return HttpRefusal{417, "the only expectation that is understood is 100-continue"};
  return std::nullopt;
}

bool has_content(std::string_view method) {
  return method == "POST" || method == "PUT" || method == "PATCH";
}

bool announces_body(const HttpRequest& request) {
  return !request.header("transfer-encoding").empty() ||
         request.header("content-length").find_first_not_of('0') != std::string_view::npos;
}

bool keeps_alive(const HttpRequest& request, int minor) {
  bool keep = minor == 1;
  for (const auto& [name, value] : request.headers) {
    if (name != "connection") continue;
    const std::string options = "," + lower_case(value) + ",";
    std::string bare;
    std::copy_if(options.begin(), options.end(), std::back_inserter(bare),
                 [](char c) { return c != ' ' && c != '\t'; });
    if (bare.find(",close,") != std::string::npos) return false;
    keep |= bare.find(",keep-alive,") != std::string::npos;
  }
  return keep;
}

std::string_view trimmed(std::string_view text) {
  static constexpr std::string_view kSpace = " \t";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// "http://host/path" (absolute form) and "/path" name the same resource; "*" is for OPTIONS.
bool split_target(std::string_view target, HttpRequest* request) {
  if (target.empty()) return false;
  if (target[0] != '/' && target != "*") {
    const size_t scheme = target.find("://");
    const std::string name = lower_case(target.substr(0, scheme));
    if (scheme == std::string_view::npos || (name != "http" && name != "https")) return false;
    target.remove_prefix(scheme + 3);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    request->authority = std::string(target.substr(0, end));
    target.remove_prefix(end);
    if (request->authority.empty()) return false;
  }
  const size_t mark = target.find('?');
  auto path = percent_decoded(target.substr(0, mark));
  if (!path) return false;
  request->path = path->empty() ? "/" : std::move(*path);
  if (mark != std::string_view::npos) request->query = std::string(target.substr(mark + 1));
  return true;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c) || c == '\t') return std::nullopt;
    out += c;
  }
  return out;
}

}  // namespace skiff::http
