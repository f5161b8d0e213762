// fetch/url.h -- addresses of HTTP servers: reading them, and where a redirect leads.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace skiff::fetch {

struct Url {
  bool secure = false;       // https
  std::string host;          // without brackets
  std::string port = "80";   // in digits
  std::string target = "/";  // path and query, percent-encoded

  // HOST or HOST:PORT, as the header Host has it.
  std::string authority() const;
  std::string text() const;
  // Whether both name the same server in the same way.
  bool same_server(const Url& other) const {
    return secure == other.secure && host == other.host && port == other.port;
  }
};

// Reads http://HOST[:PORT][/PATH] or the same with https; a fragment is dropped. Names and
// passwords before the host are refused, as are bytes that no request line can carry. At most 8192
// bytes.
Result<Url> parse_url(std::string_view text);

// What a Location header means for a request to `base`: a whole URL, //HOST..., /PATH, or a path
// beside that of `base`.
Result<Url> resolve(const Url& base, std::string_view location);

// Percent-encodes all but letters, digits, - . _ ~ and /.
std::string encoded_path(std::string_view path);

}  // namespace skiff::fetch
