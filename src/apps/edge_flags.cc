#include "apps/edge_flags.h"

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "base/load_error.h"
#include "serve/http/api_keys.h"

namespace skiff::apps {
namespace {

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Status check_all(const std::vector<std::string>& keys, const char* source) {
  for (const std::string& key : keys)
    if (const Status good = http::check_api_key(key); !good)
      return Error{Code::kInvalid, fmt::format("{}: {}", source, good.error().what), source};
  return ok();
}

// The keys of --NAME and --NAME-file together.
Result<std::vector<std::string>> given_keys(const Args& args, const std::string& name) {
  std::vector<std::string> keys = args.texts(name);
  if (const Status good = check_all(keys, ("--" + name).c_str()); !good) return good.error();
  const std::string file = name + "-file";
  if (!args.given(file)) return keys;
  auto more = http::read_key_file(args.text(file), file);
  if (!more) return more.error();
  keys.insert(keys.end(), more->begin(), more->end());
  return keys;
}

// A list that was not given keeps the table's default.
std::vector<std::string> listed_or(const Args& args, std::string_view flag) {
  return args.given(flag) ? listed(args, flag) : std::vector<std::string>{args.text(flag)};
}

void apply_limits(const Args& args, http::HttpConfig* http) {
  http->max_body = static_cast<size_t>(args.integer("max-body-size"));
  http->max_header = static_cast<size_t>(args.integer("max-header-size"));
  http->max_connections = static_cast<int>(args.integer("max-connections"));
  http->header_seconds = args.number("header-timeout");
  http->body_seconds = args.number("body-timeout");
  http->idle_seconds = args.number("timeout-keep-alive");
}

}  // namespace

std::vector<std::string> listed(const Args& args, std::string_view flag) {
  std::vector<std::string> out;
  for (const std::string& text : args.texts(flag)) {
    if (!text.starts_with('[')) {
      out.push_back(text);
      continue;
    }
    // "[::1]" is an address and not a list.
    const auto list = parse_json(text);
    if (!list && flag == "allowed-hosts") {
      out.push_back(text);
      continue;
    }
    if (!list)
      throw UsageError(fmt::format("--{} {}: not a JSON list: {}", flag, text, list.error().what));
    for (const Json& value : *list) {
      if (!value.is_string())
        throw UsageError(fmt::format("--{} {}: must be a list of strings", flag, text));
      out.push_back(value.get<std::string>());
    }
  }
  return out;
}

Result<std::vector<std::string>> admin_keys(const Args& args,
                                            const std::vector<std::string>& api_keys) {
  auto keys = given_keys(args, "admin-key");
  if (!keys) return keys;
  for (const std::string& key : *keys)
    if (std::ranges::find(api_keys, key) != api_keys.end())
      return Error{Code::kInvalid,
                   "a key of --admin-key is an API key, too, which would let every client with it "
                   "pause the server; give the operator a key of its own",
                   "admin-key"};
  return keys;
}

Result<std::vector<std::string>> api_keys(const Args& args) {
  auto given = given_keys(args, "api-key");
  if (!given) return given;
  std::vector<std::string> keys = std::move(*given);
  const char* environment = std::getenv("FD_API_KEY");
  if (args.given("api-key") || args.given("api-key-file") || !environment) return keys;
  keys = split_at_commas(environment);
  if (keys.empty())
    return Error{Code::kInvalid,
                 "FD_API_KEY is set but holds no key, which would open the server to everybody; "
                 "put a key there, or unset it to serve without one",
                 "FD_API_KEY"};
  if (const Status good = check_all(keys, "FD_API_KEY"); !good) return good.error();
  return keys;
}

void apply_edge_flags(const Args& args, serve::ServerConfig* config) {
  config->http.host = args.text("host");
  config->http.tls_certificate = args.text("ssl-certfile");
  config->http.tls_key = args.text("ssl-keyfile");
  if (args.given("ssl-certfile") != args.given("ssl-keyfile"))
    throw UsageError("TLS needs both --ssl-certfile and --ssl-keyfile");
  auto keys = api_keys(args);
  if (!keys) throw LoadError(keys.error().what);
  config->api_keys = std::move(*keys);
  auto control = admin_keys(args, config->api_keys);
  if (!control) throw LoadError(control.error().what);
  config->admin_keys = std::move(*control);
  config->cors_origins = listed(args, "allowed-origins");
  config->cors_methods = listed_or(args, "allowed-methods");
  config->cors_headers = listed_or(args, "allowed-headers");
  config->cors_credentials = args.on("allow-credentials");
  config->allowed_hosts = listed(args, "allowed-hosts");
  config->access_log = args.text("access-log") == "on" && !args.on("disable-access-log");
  apply_limits(args, &config->http);
}

}  // namespace skiff::apps
