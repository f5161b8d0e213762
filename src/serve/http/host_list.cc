#include "serve/http/host_list.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "serve/http/api_error.h"
#include "serve/http/head.h"

namespace skiff::http {
namespace {

// Strips port, brackets and last dot: "Name.", "name:8000", "[::1]:8000" and "[::1]" become "name"
// and "::1".
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? "" : lower_case(authority.substr(1, end - 1));
  }
  if (std::count(authority.begin(), authority.end(), ':') == 1)
    authority = authority.substr(0, authority.find(':'));
  if (authority.ends_with('.')) authority.remove_suffix(1);
  return lower_case(authority);
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string name = host_of(host);
  if (name == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, name.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_wildcard(std::string_view host) {
  const std::string name = host_of(host);
  in_addr v4;
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return v4.s_addr == 0;
  in6_addr v6;
  return inet_pton(AF_INET6, name.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

HostList::HostList(const std::string& bound, const std::vector<std::string>& names)
    : any_(names.empty() ? !is_loopback(bound)
                         : std::find(names.begin(), names.end(), "*") != names.end()) {
  for (const std::string& name : names) names_.push_back(host_of(name));
  names_.push_back(host_of(bound));
}

bool HostList::allows(std::string_view authority) const {
  const std::string host = host_of(authority);
  return is_loopback(host) || std::find(names_.begin(), names_.end(), host) != names_.end();
}

std::optional<HttpResponse> HostList::refuse(const HttpRequest& request) const {
  if (any_) return std::nullopt;
  for (const std::string_view authority :
       {request.header("host"), std::string_view(request.authority)}) {
    if (authority.empty() || allows(authority)) continue;
    ApiError error = api_error(
        403, fmt::format("this server does not answer to the name \"{}\"; --allowed-hosts adds one",
                         escaped(authority, 100)));
    error.type = "permission_error";
    error.code = "host_not_allowed";
    return error_response(error);
  }
  return std::nullopt;
}

}  // namespace skiff::http
