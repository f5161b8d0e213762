// fetch/client.h -- a small blocking HTTP/1.1 client, plain or over TLS, for what this program asks
// of others: sending spans, downloading models. Boost stays in client.cc.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fetch/name_lookup.h"
#include "fetch/url.h"

namespace skiff::fetch {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = "GET";
  Url url;
  Headers headers;
  std::string body;
};

struct Response {
  int status = 0;
  Headers headers;                                                  // names in lower case
  std::string_view header(std::string_view lower_case_name) const;  // empty if absent
};

// Used by one thread at a time. Certificates and host names of servers are verified. Redirects are
// answers like any other; interim responses (1xx) before the answer are left out.
class Client {
 public:
  struct Options {
    double connect_seconds = 10;  // name, connection and TLS handshake, each
    double idle_seconds = 30;     // longest time without a byte
    // Longest time for a whole exchange; each `body_rate` bytes of the answer's body add a second.
    double total_seconds = 60;
    double body_rate = 1024;  // 0: a body adds nothing
    size_t max_head = size_t{64} << 10;
    std::string ca_file;  // PEM file with the certificates to trust; empty: the system's
  };
  // Throws LoadError if ca_file cannot be used. `find` is for tests.
  explicit Client(const Options& options, FindAddresses find = system_addresses);
  ~Client();

  // Either may end the exchange with an Error, which exchange() then returns.
  using OnHead = std::function<Status(const Response&)>;
  using OnBody = std::function<Status(std::string_view piece)>;
  // Sends one request over a connection of its own and reads the whole answer. kExhausted: trouble
  // of the network or of the server's HTTP, for which a retry may help.
  Result<Response> exchange(const Request& request, const OnHead& on_head, const OnBody& on_body);
  // Does what exchange() does, and returns the body, of at most `max_body` bytes, in memory.
  Result<std::pair<Response, std::string>> fetch(const Request& request, size_t max_body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::fetch
