// apps/help.h -- formats the table of flags for --help, and as Markdown for docs/parameters.md.
#pragma once
#include <string>

#include "apps/args.h"

namespace skiff::apps {

std::string general_help();
std::string command_help(Commands command);
std::string parameters_markdown();

}  // namespace skiff::apps
