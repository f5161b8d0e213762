// route/instance.h -- what an instance tells of itself when it registers (POST /register), with the
// field names of FastDeploy's router.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace skiff::route {

enum class Role { kMixed, kPrefill, kDecode };
std::string_view name(Role role);

struct Instance {
  Role role = Role::kMixed;
  std::string host;  // host_ip: a name or an address, IPv6 without brackets
  uint16_t port = 0;
  uint16_t metrics_port = 0;  // where /metrics is, if not at `port`; 0: there
  bool secure = false;        // scheme: "https", or "http", which is the default
  bool paused = false;        // is_paused: the instance takes no new requests
  std::string version;
  // These are passed on in disaggregate_info as they were given.
  Json connector_port = "0", device_ids = Json::array(), rdma_ports = Json::array(), tp_size = 1;
  std::vector<std::string> transfer_protocol;  // "ipc", "rdma", "tcp"

  std::string url() const;        // "http://HOST:PORT" or https, by which instances are told apart
  std::string authority() const;  // "HOST:PORT", with brackets around an IPv6 address
};

// Reads the body of a registration. Ports may be numbers or strings; unknown fields are ignored.
// The error names the field.
Result<Instance> parse_instance(std::string_view body);
// Reads "http://HOST:PORT", the same with https, or "HOST:PORT", a value of --backends. The error
// says what is wrong.
Result<Instance> parse_backend_url(std::string_view url);

// Returns what /registered tells of an instance.
Json instance_json(const Instance& instance);

// Returns the disaggregate_info that both instances of a pair get with a request.
Json disaggregate_info(const Instance& prefill, const Instance& decode);

}  // namespace skiff::route
