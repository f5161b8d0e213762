#include "capi/log_setup.h"

#include <mutex>

#include "base/log.h"

namespace skiff::capi {

void set_up_log(const std::string& level, const std::string& format) {
  static std::once_flag once;
  static std::string first;
  std::call_once(once, [&] {
    first = format;
    init_log(level, format == "json" ? LogFormat::kJson : LogFormat::kText);
  });
  spdlog::set_level(spdlog::level::from_str(level));
  if (format != first)
    spdlog::warn("--log-format {} is ignored: this process logs as {} already", format, first);
}

}  // namespace skiff::capi
