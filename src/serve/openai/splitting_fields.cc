// Fields by which a router says that the prompt of a request is computed by one server and the
// reply by another: FastDeploy's disaggregate_info and vLLM's kv_transfer_params.
#include <charconv>

#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

// Reads a number, or a text with one, as FastDeploy's routers send it.
MaybeProblem read_port(const OrderedJson& object, const char* name, int& port) {
  const auto found = object.find(name);
  if (found == object.end()) return Problem{fmt::format("lacks \"{}\"", name)};
  int64_t value = 0;
  if (found->is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) value = 0;
  } else if (found->is_number_integer()) {
    value = found->get<int64_t>();
  }
  if (value < 1 || value > 65535)
    return Problem{fmt::format("has a \"{}\" that is no port: {}", name, described(*found))};
  port = static_cast<int>(value);
  return std::nullopt;
}

// Names are not looked up: whoever may send requests shall not choose what is asked of name
// servers.
MaybeProblem read_host(const OrderedJson& object, const char* name, std::string& host) {
  constexpr size_t kMaxAddress = 45;
  const auto found = object.find(name);
  if (found == object.end()) return Problem{fmt::format("lacks \"{}\"", name)};
  const bool text = found->is_string();
  if (text) host = found->get<std::string>();
  const bool numeric = host.find_first_not_of("0123456789abcdefABCDEF.:") == std::string::npos;
  if (!text || host.empty() || host.size() > kMaxAddress || (!numeric && host != "localhost"))
    return Problem{
        fmt::format("has a \"{}\" that is no numeric address: {}", name, described(*found))};
  if (host == "localhost") host = "127.0.0.1";
  return std::nullopt;
}

MaybeProblem read_origin(const OrderedJson& value, const char* host, const char* port,
                         CallDraft& draft) {
  KvOrigin origin;
  if (auto problem = read_host(value, host, origin.host)) return problem;
  if (auto problem = read_port(value, port, origin.port)) return problem;
  draft.call.request.origin = std::move(origin);
  return std::nullopt;
}

MaybeProblem read_disaggregate_info(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  return read_origin(value, "prefill_ip", "prefill_connector_port", draft);
}

// A request to the prefill server has do_remote_decode, and names nobody.
MaybeProblem read_kv_transfer_params(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  if (value.value("do_remote_prefill", OrderedJson()) == true)
    return read_origin(value, "remote_host", "remote_port", draft);
  if (value.value("do_remote_decode", OrderedJson()) == true)
    draft.call.request.origin = KvOrigin{};
  return std::nullopt;
}

}  // namespace

std::vector<Field> splitting_fields() {
  return {
      {"disaggregate_info", Scope::kBoth, read_disaggregate_info},
      {"kv_transfer_params", Scope::kBoth, read_kv_transfer_params},
  };
}

}  // namespace skiff::openai
