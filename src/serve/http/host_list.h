// serve/http/host_list.h -- the host names that a server answers to. After DNS rebinding (the name
// of a loaded page resolves to 127.0.0.1) the page has the same origin as a local server, and only
// the Host header reveals it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/server.h"

namespace skiff::http {

// Immutable.
class HostList {
 public:
  // `bound` is the address that the server listens on. `names` are the names that it answers to
  // besides localhost and loopback addresses; "*" stands for any. Without names every name is
  // allowed, unless `bound` is a loopback address: then only loopback names are.
  HostList(const std::string& bound, const std::vector<std::string>& names);

  // Returns the 403 for any other name. A request that names no host does not come from a browser,
  // and passes.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;

 private:
  bool allows(std::string_view authority) const;
  bool any_;
  std::vector<std::string> names_;
};

bool is_loopback(std::string_view host);
// 0.0.0.0 or ::, every address of the machine.
bool is_wildcard(std::string_view host);

}  // namespace skiff::http
