// apps/background.h -- the files of a server in the background.
#pragma once
#include <string>
#include <string_view>

#include "apps/args.h"

namespace skiff::apps {

// Returns the file that the flag names, or log/skiff-PORT and `ending`. Throws UsageError for port
// 0 without the flag: nobody would find that server again.
std::string background_file(const Args& args, std::string_view flag, std::string_view ending);

}  // namespace skiff::apps
