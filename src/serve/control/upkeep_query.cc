#include "serve/control/upkeep_query.h"

#include <fmt/format.h>

#include <string>

#include "base/log.h"
#include "serve/control/query.h"

namespace skiff::control {
namespace {

constexpr size_t kMaxText = 4096;

Status add_tag(engine::Parts& parts, std::string_view tag) {
  if (tag == "weight" || tag == "weights")
    parts.weights = true;
  else if (tag == "kv_cache")
    parts.kv = true;
  else
    return invalid("tags", fmt::format("tags must be weight, kv_cache or both, and not \"{}\"",
                                       escaped(tag, 80)));
  return ok();
}

class QueryReader {
 public:
  Status take(std::string_view key, const std::string& value) {
    if (key == "tags") {
      tagged_ = true;
      return for_each_part(value, ',', [&](std::string_view tag) { return add_tag(tags_, tag); });
    }
    if (key == "level") {
      if (value == "1" || value == "2") return ok();
      return invalid("level",
                     "level must be 1 or 2; to stop work without giving memory back, "
                     "POST /v1/pause");
    }
    if (key == "mode") {
      if (value != "abort" && value != "wait") return invalid("mode", "mode must be abort or wait");
      query_.ending.waits = value == "wait";
      return ok();
    }
    if (key == "timeout") return read_seconds(value, query_.ending.seconds);
    return invalid(key, fmt::format("there is no parameter \"{}\"; there are tags, level, mode and "
                                    "timeout",
                                    escaped(key, 80)));
  }
  UpkeepQuery result() {
    if (tagged_) query_.parts = tags_;
    return query_;
  }
  bool names_nothing() const { return tagged_ && !tags_.any(); }

 private:
  UpkeepQuery query_{.parts = {.weights = true, .kv = true},
                     .ending = {.waits = false, .seconds = kWaitSeconds}};
  engine::Parts tags_;
  bool tagged_ = false;
};

Result<std::string> text_of(const OrderedJson& value, const char* key) {
  if (value.is_number_integer()) return value.dump();
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxText)
    return invalid(key, fmt::format("{} must be a string of at most {} bytes", key, kMaxText));
  return value.get<std::string>();
}

}  // namespace

Result<UpkeepQuery> read_upkeep_query(std::string_view query) {
  QueryReader reader;
  const Status read =
      read_query(query, [&](std::string_view key, const std::string& value) -> Status {
        return reader.take(key, value);
      });
  if (!read) return read.error();
  if (reader.names_nothing()) return invalid("tags", "tags names nothing");
  return reader.result();
}

Result<engine::WeightsUpdate> read_update(const OrderedJson& body) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  engine::WeightsUpdate update;
  for (const auto& [key, value] : body.items()) {
    const bool is_text = key == "version" || key == "path" || key == "checksum";
    if (!is_text && key != "verify_checksum")
      return invalid(key, fmt::format("there is no field \"{}\"; there are version, path, "
                                      "verify_checksum and checksum",
                                      escaped(key, 80)));
    if (value.is_null()) continue;
    if (key == "verify_checksum") {
      if (!value.is_boolean()) return invalid(key, "verify_checksum must be true or false");
      update.digest = value.get<bool>();
      continue;
    }
    auto text = text_of(value, key.c_str());
    if (!text) return text.error();
    (key == "version" ? update.version : key == "path" ? update.folder : update.expected) = *text;
  }
  return update;
}

}  // namespace skiff::control
