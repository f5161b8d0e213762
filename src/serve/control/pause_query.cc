#include "serve/control/pause_query.h"

#include <fmt/format.h>

#include "base/log.h"
#include "serve/control/query.h"

namespace skiff::control {
namespace {

Status read_mode(const std::string& value, bool& waits) {
  if (value == "keep")
    return Error{Code::kUnsupported,
                 "mode=keep is not supported: requests under way cannot be held back and go on "
                 "later; let them finish with mode=wait, or end them with mode=abort",
                 "mode"};
  if (value != "abort" && value != "wait")
    return invalid("mode",
                   fmt::format("mode must be abort or wait, and not \"{}\"", escaped(value, 80)));
  waits = value == "wait";
  return ok();
}

}  // namespace

Result<PauseQuery> read_pause_query(std::string_view query) {
  PauseQuery out{.ending = {.waits = false, .seconds = kWaitSeconds}};
  bool waits = false, old_waits = false;
  const Status read =
      read_query(query, [&](std::string_view key, const std::string& value) -> Status {
        if (key == "mode") return read_mode(value, waits);
        if (key == "wait_for_inflight_requests") return read_switch(key, value, old_waits);
        if (key == "clear_cache") return read_switch(key, value, out.forgets);
        if (key == "timeout") return read_seconds(value, out.ending.seconds);
        return invalid(key, fmt::format("there is no parameter \"{}\"; there are mode, "
                                        "wait_for_inflight_requests, clear_cache and timeout",
                                        escaped(key, 80)));
      });
  if (!read) return read.error();
  out.ending.waits = waits || old_waits;
  return out;
}

}  // namespace skiff::control
