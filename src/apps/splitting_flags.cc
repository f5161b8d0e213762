#include "apps/splitting_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/load_error.h"
#include "base/log.h"
#include "serve/http/api_keys.h"

namespace skiff::apps {
namespace {

int port_in(std::string_view flag, std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), port);
  if (error != std::errc{} || end != text.end() || port < 1 || port > 65535)
    throw UsageError(fmt::format("--{} has \"{}\", which is no port", flag, text));
  return port;
}

// Reads HOST:PORT, where an IPv6 address stands in brackets.
peer::Address address_in(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    throw UsageError(fmt::format("--prefill-peers has \"{}\"; it must be HOST:PORT", text));
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {std::string(host), port_in("prefill-peers", text.substr(colon + 1))};
}

std::vector<peer::Address> prefills(const Args& args) {
  std::vector<peer::Address> all;
  for (const std::string& text : args.texts("prefill-peers")) all.push_back(address_in(text));
  const std::string ports = args.text("innode-prefill-ports");
  for (size_t begin = 0; !ports.empty() && begin <= ports.size();) {
    const size_t end = std::min(ports.find(',', begin), ports.size());
    const auto port = std::string_view(ports).substr(begin, end - begin);
    all.push_back({"127.0.0.1", port_in("innode-prefill-ports", port)});
    begin = end + 1;
  }
  return all;
}

// Returns whether the ways that the flag names include shared memory. TCP, which needs no name, is
// what is left where no other way can be taken.
bool shares_memory(const Args& args) {
  bool shares = false;
  const std::string ways = args.text("cache-transfer-protocol");
  for (size_t begin = 0; begin <= ways.size();) {
    const size_t end = std::min(ways.find(',', begin), ways.size());
    const auto way = std::string_view(ways).substr(begin, end - begin);
    if (way != "ipc" && way != "rdma" && way != "tcp")
      throw UsageError(
          fmt::format("--cache-transfer-protocol has \"{}\"; ipc, tcp and rdma are known", way));
    if (way == "rdma")
      spdlog::warn("--cache-transfer-protocol: there is no RDMA; blocks go over TCP instead");
    shares = shares || way == "ipc";
    begin = end + 1;
  }
  return shares;
}

void check_role(const Args& args, const std::string& role) {
  const auto only = [&](const char* wanted, std::initializer_list<const char*> flags) {
    for (const char* flag : flags)
      if (role != wanted && args.given(flag))
        throw UsageError(
            fmt::format("--{} is for --splitwise-role {}, but the role is {}", flag, wanted, role));
  };
  only("prefill", {"pd-comm-port", "pd-comm-host", "pd-buffer-size", "pd-lease"});
  only("decode", {"prefill-peers", "innode-prefill-ports", "pd-wait"});
  if (role == "mixed" && args.given("pd-comm-key-file"))
    throw UsageError("--pd-comm-key-file is for --splitwise-role prefill and decode");
}

}  // namespace

peer::Settings splitting_settings(const Args& args) {
  const std::string role = args.text("splitwise-role");
  check_role(args, role);
  peer::Settings settings;
  if (role == "mixed") return settings;
  settings.role = role == "prefill" ? peer::Role::kPrefill : peer::Role::kDecode;
  settings.listen = {args.text("pd-comm-host"), static_cast<int>(args.integer("pd-comm-port"))};
  settings.buffer_gb = args.number("pd-buffer-size");
  settings.lease_seconds = args.number("pd-lease");
  settings.wait_seconds = args.number("pd-wait");
  settings.shares_memory = shares_memory(args);
  settings.prefills = prefills(args);
  if (const std::string file = args.text("pd-comm-key-file"); !file.empty()) {
    const auto keys = http::read_key_file(file, "pd-comm-key-file");
    if (!keys) fail_load("{}", keys.error().what);
    settings.key = keys->front();
  }
  return settings;
}

}  // namespace skiff::apps
