#include "serve/http/access_log.h"

#include <algorithm>
#include <array>

namespace skiff::http {

std::string access_line(const HttpRecord& record) {
  return fmt::format("request client={} method={} path={} status={} bytes={} ms={:.1f} id={}{}",
                     record.client, escaped(record.method, 32), escaped(record.target),
                     record.status, record.sent, record.seconds * 1e3, escaped(record.request_id),
                     record.complete ? "" : " cut=true");
}

spdlog::level::level_enum access_level(const HttpRecord& record) {
  static constexpr std::array kProbes{
      "/health",          "/live",   "/ping", "/ready", "/health_generate", "/v2/health/live",
      "/v2/health/ready", "/metrics"};
  const bool probe = std::ranges::find(kProbes, record.target) != kProbes.end();
  return probe && record.status == 200 ? spdlog::level::debug : spdlog::level::info;
}

void log_access(const HttpRecord& record) {
  const auto level = access_level(record);
  if (spdlog::should_log(level)) spdlog::log(level, "{}", access_line(record));
}

}  // namespace skiff::http
