#include "serve/access_log.h"

#include "base/log.h"

namespace skiff {

std::string access_line(const HttpRecord& record) {
  return fmt::format("request client={} method={} path={} status={} bytes={} ms={:.1f} id={}{}",
                     record.client, escaped(record.method, 32), escaped(record.target),
                     record.status, record.sent, record.seconds * 1e3, escaped(record.request_id),
                     record.complete ? "" : " cut=true");
}

void log_access(const HttpRecord& record) {
  if (spdlog::should_log(spdlog::level::info)) spdlog::info("{}", access_line(record));
}

}  // namespace skiff
