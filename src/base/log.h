// base/log.h -- one logger to stderr for the process. Strings that a user sent go through
// escaped(), so that they cannot forge lines or drive a terminal.
#pragma once
#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace skiff {

// Call once in main. level: trace, debug, info, warning, error.
void init_log(std::string_view level);

// Control bytes and invalid UTF-8 as \xNN, cut at max_bytes with "...".
std::string escaped(std::string_view text, size_t max_bytes = 200);

}  // namespace skiff
