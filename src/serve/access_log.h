// serve/access_log.h -- one line a request: who, what, how it went. No text of users: neither
// queries nor headers nor bodies.
#pragma once
#include <string>

#include "serve/http_server.h"

namespace skiff {

// Fields are name=value without spaces inside, and nothing in them is a client's to forge.
std::string access_line(const HttpRecord& record);
void log_access(const HttpRecord& record);  // at level info

}  // namespace skiff
