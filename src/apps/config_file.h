// apps/config_file.h -- the flags that a file of --config holds, as words of a command line.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apps/args.h"

namespace skiff::apps {

// Keys are names of flags without dashes in front. Leaves out what `given`, the command line, has
// itself. `where` names the file. Throws UsageError that names file, line and key where a key is no
// flag or its value is not one of it.
std::vector<std::string> config_words(std::string_view text, const std::string& where,
                                      const Args& given);
// The same of the file that --config names; nothing where it is not given.
std::vector<std::string> config_file_words(const Args& given);

}  // namespace skiff::apps
