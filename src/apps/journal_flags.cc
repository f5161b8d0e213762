#include "apps/journal_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/load_error.h"

namespace skiff::apps {
namespace {

constexpr char kHeaders[] = "OTEL_EXPORTER_OTLP_HEADERS", kName[] = "OTEL_SERVICE_NAME";

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_token(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_value(std::string_view value) {
  return std::ranges::all_of(value, [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> otlp_headers(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> headers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return Error{Code::kInvalid, fmt::format("{}: a part has no =", kHeaders), kHeaders};
    std::string name = decoded(trimmed(part.substr(0, equals)));
    std::string value = decoded(trimmed(part.substr(equals + 1)));
    if (!is_token(name) || !is_value(value))
      return Error{
          Code::kInvalid,
          fmt::format("{}: number {} of its parts is no header", kHeaders, headers.size() + 1),
          kHeaders};
    headers.emplace_back(std::move(name), std::move(value));
  }
  return headers;
}

std::shared_ptr<journal::Journal> make_journal(const Args& args) {
  journal::JournalConfig config;
  config.log_file = args.text("request-log");
  config.traces_endpoint = args.text("otlp-traces-endpoint");
  config.version = SKIFF_VERSION;
  if (config.log_file.empty() && config.traces_endpoint.empty()) return nullptr;
  if (!config.traces_endpoint.empty()) {
    if (const char* given = std::getenv(kHeaders)) {
      auto headers = otlp_headers(given);
      if (!headers) throw LoadError(headers.error().what);
      config.traces_headers = std::move(*headers);
    }
    if (const char* name = std::getenv(kName); name && *name) config.service_name = name;
  }
  return std::make_shared<journal::Journal>(config);
}

}  // namespace skiff::apps
