#include "serve/control/upkeep_query.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "base/log.h"
#include "serve/http/head.h"

namespace skiff::control {
namespace {

constexpr size_t kMaxText = 4096;
constexpr double kWaitSeconds = 60, kMaxWaitSeconds = 3600;

Error invalid(std::string_view field, std::string what) {
  return {Code::kInvalid, std::move(what), std::string(field)};
}

// Calls part(text) for each part between separators, while it returns ok.
template <class Part>
Status for_each(std::string_view text, char separator, Part part) {
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (const Status good = part(text.substr(0, end)); !good) return good;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return ok();
}

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
      return for_each(value, ',', [&](std::string_view tag) { return add_tag(tags_, tag); });
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
    if (key == "timeout") return take_timeout(value);
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
  Status take_timeout(const std::string& value) {
    double seconds = -1;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, seconds);
    if (read.ec != std::errc() || read.ptr != end || !(seconds >= 0 && seconds <= kMaxWaitSeconds))
      return invalid("timeout", fmt::format("timeout must be 0 to {} seconds", kMaxWaitSeconds));
    query_.ending.seconds = seconds;
    return ok();
  }

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
  if (query.size() > kMaxText) return invalid("", "the query is too long");
  QueryReader reader;
  const Status read = for_each(query, '&', [&](std::string_view pair) -> Status {
    const size_t equals = pair.find('=');
    const auto value = http::percent_decoded(equals == pair.npos ? "" : pair.substr(equals + 1));
    const std::string_view key = pair.substr(0, equals);
    if (!value) return invalid(key, "the query has a malformed escape");
    return reader.take(key, *value);
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
