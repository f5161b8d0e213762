#include "serve/journal/exporter.h"

#include "base/load_error.h"
#include "base/log.h"
#include "serve/journal/span.h"

namespace skiff::journal {
namespace {

// The server waits for a send under way before it ends.
constexpr double kSeconds = 3, kLongest = 6;
constexpr size_t kMaxAnswer = size_t{64} << 10;

fetch::Url endpoint_of(const JournalConfig& config) {
  const auto url = fetch::parse_url(config.traces_endpoint);
  if (!url) fail_load("--otlp-traces-endpoint: {}", url.error().what);
  return *url;
}

}  // namespace

Exporter::Exporter(const JournalConfig& config)
    : service_name_(config.service_name),
      version_(config.version),
      request_{.method = "POST", .url = endpoint_of(config), .headers = {}, .body = {}},
      client_({.connect_seconds = kSeconds,
               .idle_seconds = kSeconds,
               .total_seconds = kLongest,
               .body_rate = 0,
               .ca_file = {}}) {
  request_.headers.emplace_back("Content-Type", "application/json");
  for (const auto& header : config.traces_headers) request_.headers.push_back(header);
}

size_t Exporter::send(const std::vector<std::string>& spans) {
  try {
    request_.body = traces_json(spans, service_name_, version_);
    const auto answer = client_.fetch(request_, kMaxAnswer);
    if (!answer) {
      complain(answer.error().what);
    } else if ((*answer).first.status / 100 != 2) {
      complain(fmt::format("{} answered {}", request_.url.text(), (*answer).first.status));
    } else {
      return 0;
    }
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return spans.size();
}

void Exporter::complain(const std::string& why) {
  const auto now = std::chrono::steady_clock::now();
  if (complained_ != decltype(now){} && now - complained_ < std::chrono::minutes(1)) return;
  complained_ = now;
  spdlog::warn("spans were not sent: {}", escaped(why, 500));
}

}  // namespace skiff::journal
