#include "serve/http/date.h"

#include <fmt/format.h>

namespace skiff::http {

// strftime would write the names of days and months in the process's locale.
std::string http_date(std::time_t seconds) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string HttpClock::date() {
  const std::time_t now = std::time(nullptr);
  std::lock_guard lock(mutex_);
  if (now != second_) {
    date_ = http_date(now);
    second_ = now;
  }
  return date_;
}

}  // namespace skiff::http
