#include "fetch/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace skiff::fetch {
namespace {

constexpr size_t kMaxUrl = 8192, kMaxHost = 255;

Error invalid(std::string_view text, std::string_view why) {
  constexpr size_t kMaxShown = 200;
  std::string shown;
  for (const char c : text.substr(0, kMaxShown)) shown += c > 0x20 && c < 0x7f ? c : '?';
  return {Code::kInvalid, fmt::format("{} is no address of a server: {}", shown, why), "url"};
}

bool printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), port);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && port > 0 &&
         port < 65536;
}

}  // namespace

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (secure ? "443" : "80") ? name : name + ":" + port;
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", secure ? "https" : "http", authority(), target);
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kMaxUrl) return invalid(text, "it is too long");
  if (!printable(text)) return invalid(text, "it has blanks, or characters that are not ASCII");
  Url url;
  std::string_view rest = text.substr(0, text.find('#'));
  if (rest.starts_with("https://"))
    url.secure = true;
  else if (!rest.starts_with("http://"))
    return invalid(text, "it begins neither with http:// nor with https://");
  url.port = url.secure ? "443" : "80";
  rest.remove_prefix(url.secure ? 8 : 7);
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view place = rest.substr(0, end);
  url.target = rest.substr(end);
  if (!url.target.starts_with('/')) url.target.insert(0, 1, '/');
  if (place.find('@') != std::string_view::npos)
    return invalid(place.substr(place.rfind('@')), "names and passwords have no place in it");
  const bool bracketed = place.starts_with('[');
  const size_t close = bracketed ? place.find(']') : 0;
  if (close == std::string_view::npos) return invalid(text, "a bracket is not closed");
  const size_t colon = place.find(':', close);
  if (colon != std::string_view::npos) {
    url.port = place.substr(colon + 1);
    place = place.substr(0, colon);
    if (!is_port(url.port)) return invalid(text, "its port is no number from 1 to 65535");
  }
  if (bracketed) {
    if (place.size() < 3 || place.back() != ']') return invalid(text, "its host is no address");
    place = place.substr(1, place.size() - 2);
  }
  url.host = place;
  const auto allowed = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
           (bracketed && c == ':');
  };
  if (url.host.empty() || url.host.size() > kMaxHost || !std::ranges::all_of(url.host, allowed))
    return invalid(text, "it names no host");
  return url;
}

Result<Url> resolve(const Url& base, std::string_view location) {
  if (location.starts_with("http://") || location.starts_with("https://"))
    return parse_url(location);
  Url url = base;
  if (location.starts_with("//"))
    return parse_url(fmt::format("{}:{}", base.secure ? "https" : "http", location));
  if (location.empty()) return invalid(location, "it is empty");
  if (location.starts_with('/')) {
    url.target = "/";
    location.remove_prefix(1);
  } else {
    const size_t query = std::min(base.target.find('?'), base.target.size());
    url.target = base.target.substr(0, base.target.rfind('/', query) + 1);
  }
  return parse_url(fmt::format("{}://{}{}{}", url.secure ? "https" : "http", url.authority(),
                               url.target, location));
}

std::string encoded_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' ||
                       c == '_' || c == '~' || c == '/';
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace skiff::fetch
