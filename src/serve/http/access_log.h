// serve/http/access_log.h -- one line for each request: client, request, status and times. It holds
// no text of users: neither queries nor headers nor bodies.
#pragma once
#include <string>

#include "base/log.h"
#include "serve/http/server.h"

namespace skiff::http {

// Fields are name=value without spaces inside; what clients send is escaped, so they cannot forge
// fields.
std::string access_line(const HttpRecord& record);
// Probes and scrapes that succeed arrive every few seconds and carry no information: their level is
// debug.
spdlog::level::level_enum access_level(const HttpRecord& record);
void log_access(const HttpRecord& record);

}  // namespace skiff::http
