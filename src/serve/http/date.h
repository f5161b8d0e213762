// serve/http/date.h -- the Date header of a response. Private to the HTTP server.
#pragma once
#include <ctime>
#include <mutex>
#include <string>

namespace skiff::http {

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7).
std::string http_date(std::time_t seconds);

// The current date, formatted at most once a second. Thread-safe.
class HttpClock {
 public:
  std::string date();

 private:
  std::mutex mutex_;
  std::time_t second_ = -1;  // guarded by mutex_
  std::string date_;         // guarded by mutex_
};

}  // namespace skiff::http
