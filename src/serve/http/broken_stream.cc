#include "serve/http/broken_stream.h"

#include "base/json.h"
#include "serve/http/api_error.h"

namespace skiff::http {

std::string last_event(const std::string& path, std::string_view type, const std::string& why) {
  if (type.starts_with("application/x-ndjson")) return Json{{"error", why}}.dump() + "\n";
  if (!type.starts_with("text/event-stream")) return "";
  const std::string begin = "\n\n";  // ends what may be half an event
  if (path.ends_with("/messages"))
    return begin + "event: error\ndata: " +
           Json{{"type", "error"}, {"error", {{"type", "api_error"}, {"message", why}}}}.dump() +
           "\n\n";
  if (path.ends_with("/responses"))
    return begin + "event: error\ndata: " +
           Json{{"type", "error"}, {"code", "server_error"}, {"message", why}, {"param", nullptr}}
               .dump() +
           "\n\n";
  return begin + "data: " + error_json(api_error(502, why)).dump() + "\n\n";
}

}  // namespace skiff::http
