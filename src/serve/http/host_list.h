// serve/http/host_list.h -- the names by which a server may be called. A page whose name resolves
// to 127.0.0.1 after it was loaded (DNS rebinding) is of the same origin as a local server, and
// only the Host header gives it away.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/server.h"

namespace skiff {

// Immutable.
class HostList {
 public:
  // `bound` is the address that the server listens on. `names` are those that it answers to besides
  // localhost and loopback addresses; "*" is any. Without names every host may call unless `bound`
  // is of the loopback, which then allows itself only.
  HostList(const std::string& bound, const std::vector<std::string>& names);

  // The 403 for another name. A request that names no host at all is not a browser's, and passes.
  std::optional<HttpResponse> refuse(const HttpRequest& request) const;

 private:
  bool allows(std::string_view authority) const;
  bool any_;
  std::vector<std::string> names_;
};

bool is_loopback(std::string_view host);
// 0.0.0.0 or ::, every address of the machine.
bool is_wildcard(std::string_view host);

}  // namespace skiff
