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

// Invalid UTF-8 and characters that no terminal should be sent (controls, bidirectional marks,
// line and paragraph separators) as \xNN of their bytes, cut at max_bytes with "...".
std::string escaped(std::string_view text, size_t max_bytes = 200);

}  // namespace skiff
