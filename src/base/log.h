// base/log.h -- one logger to stderr for the process. Strings that a user sent go through
// escaped(), so that they cannot forge lines or drive a terminal.
#pragma once
#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace skiff {

enum class LogFormat {
  kText,
  kJson,  // a line is {"time", "level", "message"}
};

// Call once in main. level: trace, debug, info, warning, error.
void init_log(std::string_view level, LogFormat format = LogFormat::kText);

// Returns the text with invalid UTF-8 and with characters that could drive a terminal (controls,
// bidirectional marks, line and paragraph separators) written as \xNN for each byte; a text longer
// than max_bytes is cut and ends in "...".
std::string escaped(std::string_view text, size_t max_bytes = 200);

}  // namespace skiff
