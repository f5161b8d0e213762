// capi/log_setup.h -- the log of the library within another process: one for all its engines.
#pragma once
#include <string>

namespace skiff::capi {

// The first call makes the logger, to stderr; later ones change its level. Another format than the
// first one's gets a warning. Thread-safe.
void set_up_log(const std::string& level, const std::string& format);

}  // namespace skiff::capi
