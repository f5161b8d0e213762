#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <ctime>

#include "base/json.h"
#include "base/utf8.h"

namespace skiff {
namespace {

class JsonLines : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const Json line = {{"time", utc(message.time)},
                       {"level", text_of(spdlog::level::to_string_view(message.level))},
                       {"message", text_of(message.payload)}};
    const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonLines>();
  }

 private:
  static std::string text_of(spdlog::string_view_t text) { return {text.data(), text.size()}; }
  static std::string utc(spdlog::log_clock::time_point time) {
    using std::chrono::milliseconds;
    const auto ms = std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
    const std::time_t seconds = ms / 1000;
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       ms % 1000);
  }
};

// `character` must be one character in valid UTF-8.
bool harmless(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) >= 0x20 && byte(0) != 0x7f;
  if (character.size() == 2)  // U+0080..9F, U+061C
    return !(byte(0) == 0xc2 && byte(1) < 0xa0) && character != "\xd8\x9c";
  if (character.size() != 3) return true;
  // U+200B..200F, 2028..202E, 2060..206F, FEFF
  if (byte(0) == 0xe2 && byte(1) == 0x80)
    return byte(2) < 0x8b || (byte(2) > 0x8f && byte(2) < 0xa8) || byte(2) > 0xae;
  if (byte(0) == 0xe2 && byte(1) == 0x81) return byte(2) < 0xa0 || byte(2) > 0xaf;
  return character != "\xef\xbb\xbf";
}

}  // namespace

void init_log(std::string_view level, LogFormat format) {
  auto logger = spdlog::stderr_color_mt("skiff");
  if (format == LogFormat::kJson)
    logger->set_formatter(std::make_unique<JsonLines>());
  else
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string escaped(std::string_view text, size_t max_bytes) {
  std::string out;
  const bool cut = text.size() > max_bytes;
  if (cut) text = text.substr(0, max_bytes);
  while (!text.empty()) {
    const int length = utf8_length(text);
    const std::string_view character =
        text.substr(0, length <= 0 ? 1 : static_cast<size_t>(length));
    if (length > 0 && harmless(character))
      out += character;
    else
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(character.size());
  }
  if (cut) out += "...";
  return out;
}

}  // namespace skiff
