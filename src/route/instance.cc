#include "route/instance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "fetch/url.h"
#include "serve/http/head.h"

namespace skiff::route {
namespace {

constexpr std::array<std::string_view, 3> kRoles{"mixed", "prefill", "decode"};
constexpr size_t kMaxBody = 64 << 10;

Error invalid(const char* field, std::string what) {
  return {Code::kInvalid, fmt::format("{} {}", field, what), field};
}

std::optional<uint16_t> port_of(const Json& value) {
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number < 1 || number > UINT16_MAX) return std::nullopt;
    return static_cast<uint16_t>(number);
  }
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// Returns true for a name or an address that cannot be anything else within a request.
bool is_host(std::string_view host) {
  return !host.empty() && host.size() <= 255 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == ':' || c == '_';
  });
}

bool holds(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Result<Role> role_of(const Json& body) {
  if (!body.contains("role") || !body["role"].is_string())
    return invalid("role", "must be \"mixed\", \"prefill\" or \"decode\"");
  const std::string given = http::lower_case(body["role"].get<std::string>());
  for (size_t i = 0; i < kRoles.size(); ++i)
    if (kRoles[i] == given) return static_cast<Role>(i);
  return invalid("role", fmt::format("is \"{}\"; it must be \"mixed\", \"prefill\" or \"decode\"",
                                     escaped(given, 40)));
}

// The scheme may stand before the host, too.
Status take_scheme(const Json& body, Instance* instance) {
  for (const auto& [scheme, secure] : {std::pair{"http://", false}, {"https://", true}})
    if (instance->host.starts_with(scheme)) {
      instance->host.erase(0, std::string_view(scheme).size());
      instance->secure = secure;
    }
  const auto given = body.find("scheme");
  if (given == body.end()) return ok();
  if (*given != "http" && *given != "https")
    return invalid("scheme", "must be \"http\" or \"https\"");
  instance->secure = *given == "https";
  return ok();
}

// FastDeploy writes 0 where metrics are on the port of the service.
Status take_metrics_port(const Json& body, Instance* instance) {
  const auto given = body.find("metrics_port");
  if (given == body.end() || given->is_null() || *given == 0 || *given == "0") return ok();
  const auto port = port_of(*given);
  if (!port) return invalid("metrics_port", "must be a number from 0 to 65535");
  instance->metrics_port = *port;
  return ok();
}

// What the router passes on is bounded by the size of the body.
Status take_transfer(const Json& body, Instance* instance) {
  for (const auto& [key, to] : {std::pair{"connector_port", &instance->connector_port},
                                {"device_ids", &instance->device_ids},
                                {"rdma_ports", &instance->rdma_ports},
                                {"tp_size", &instance->tp_size}})
    if (body.contains(key)) *to = body[key];
  const auto protocols = body.find("transfer_protocol");
  if (protocols == body.end()) return ok();
  const Json list = protocols->is_array() ? *protocols : Json::array({*protocols});
  for (const Json& one : list) {
    if (!one.is_string()) return invalid("transfer_protocol", "must be a list of strings");
    instance->transfer_protocol.push_back(one.get<std::string>());
  }
  return ok();
}

}  // namespace

std::string_view name(Role role) { return kRoles[static_cast<size_t>(role)]; }

std::string Instance::url() const {
  return fmt::format("{}://{}", secure ? "https" : "http", authority());
}

std::string Instance::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Instance> parse_instance(std::string_view text) {
  const auto body = parse_json(text, {.max_bytes = kMaxBody, .max_depth = 8});
  if (!body) return body.error();
  if (!body->is_object())
    return Error{Code::kInvalid, "the body must be a JSON object with role, host_ip and port"};
  Instance instance;
  const auto role = role_of(*body);
  if (!role) return role.error();
  instance.role = *role;
  if (!body->contains("host_ip") || !(*body)["host_ip"].is_string())
    return invalid("host_ip", "must be the address of the instance");
  instance.host = (*body)["host_ip"].get<std::string>();
  if (const Status taken = take_scheme(*body, &instance); !taken) return taken.error();
  if (instance.host.starts_with('[') && instance.host.ends_with(']'))
    instance.host = instance.host.substr(1, instance.host.size() - 2);
  if (!is_host(instance.host)) return invalid("host_ip", "must be a host name or an address");
  const auto port = body->contains("port") ? port_of((*body)["port"]) : std::nullopt;
  if (!port) return invalid("port", "must be a number from 1 to 65535");
  instance.port = *port;
  if (const Status taken = take_metrics_port(*body, &instance); !taken) return taken.error();
  instance.paused = body->contains("is_paused") && (*body)["is_paused"] == true;
  if (body->contains("version") && (*body)["version"].is_string())
    instance.version = (*body)["version"].get<std::string>();
  if (const Status taken = take_transfer(*body, &instance); !taken) return taken.error();
  return instance;
}

Result<Instance> parse_backend_url(std::string_view url) {
  const std::string text =
      url.find("://") == std::string_view::npos ? "http://" + std::string(url) : std::string(url);
  const auto parsed = fetch::parse_url(text);
  const auto refuse = [&](const std::string& why) {
    return Error{Code::kInvalid, fmt::format("--backends {}: {}", escaped(url), why), "backends"};
  };
  if (!parsed) return refuse(parsed.error().what);
  if (parsed->target != "/" && !parsed->target.empty())
    return refuse("only http://HOST:PORT or https://HOST:PORT can be given, without a path");
  const auto port = port_of(Json(parsed->port));
  if (!port || !is_host(parsed->host))
    return refuse("it is not http://HOST:PORT or https://HOST:PORT");
  Instance instance;
  instance.secure = parsed->secure;
  instance.host = parsed->host;
  instance.port = *port;
  return instance;
}

Json instance_json(const Instance& instance) {
  return {{"role", name(instance.role)},
          {"host_ip", instance.host},
          {"port", instance.port},
          {"metrics_port", instance.metrics_port},
          {"scheme", instance.secure ? "https" : "http"},
          {"url", instance.url()},
          {"is_paused", instance.paused},
          {"version", instance.version},
          {"connector_port", instance.connector_port},
          {"device_ids", instance.device_ids},
          {"rdma_ports", instance.rdma_ports},
          {"tp_size", instance.tp_size},
          {"transfer_protocol", instance.transfer_protocol}};
}

// Chooses ipc where both are on one host, know it and have ranks alike; else what both know, or
// rdma.
Json disaggregate_info(const Instance& prefill, const Instance& decode) {
  const auto both = [&](std::string_view protocol) {
    return holds(prefill.transfer_protocol, protocol) && holds(decode.transfer_protocol, protocol);
  };
  const bool near = prefill.host == decode.host && prefill.tp_size == decode.tp_size;
  const char* protocol = near && both("ipc") ? "ipc" : "rdma";
  if (protocol == std::string_view("rdma") && !both("rdma") && both("tcp")) protocol = "tcp";
  return {{"prefill_ip", prefill.host},
          {"decode_ip", decode.host},
          {"prefill_connector_port", prefill.connector_port},
          {"decode_connector_port", decode.connector_port},
          {"decode_device_ids", decode.device_ids},
          {"decode_rdma_ports", decode.rdma_ports},
          {"transfer_protocol", protocol},
          {"decode_tp_size", decode.tp_size}};
}

}  // namespace skiff::route
