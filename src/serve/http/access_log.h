// serve/http/access_log.h -- one line a request: who, what, how it went. No text of users: neither
// queries nor headers nor bodies.
#pragma once
#include <string>

#include "base/log.h"
#include "serve/http/server.h"

namespace skiff {

// Fields are name=value without spaces inside, and nothing in them is a client's to forge.
std::string access_line(const HttpRecord& record);
// Probes and scrapes that succeed come every few seconds and say nothing: they are debug.
spdlog::level::level_enum access_level(const HttpRecord& record);
void log_access(const HttpRecord& record);

}  // namespace skiff
