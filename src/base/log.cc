#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/utf8.h"

namespace skiff {

void init_log(std::string_view level) {
  auto logger = spdlog::stderr_color_mt("skiff");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string escaped(std::string_view text, size_t max_bytes) {
  std::string out;
  const bool cut = text.size() > max_bytes;
  if (cut) text = text.substr(0, max_bytes);
  for (size_t i = 0; i < text.size();) {
    const int length = utf8_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length <= 0 || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      out += text.substr(i, static_cast<size_t>(length));
      i += static_cast<size_t>(length);
    }
  }
  if (cut) out += "...";
  return out;
}

}  // namespace skiff
