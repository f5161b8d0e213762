#include "serve/pooling/write.h"

#include <fmt/format.h>

#include <bit>

#include "text/base64.h"

namespace skiff::pooling {

void open_list(const Envelope& envelope, const char* prefix, const char* object, JsonWriter& json) {
  json.open_object().key("id").string(prefix + envelope.id);
  json.key("object").string(object).key("created").integer(envelope.created);
  json.key("model").string(envelope.model).key("data").open_array();
}

void close_list(const service::Usage& usage, JsonWriter& json) {
  json.close_array();
  write_usage(usage, json);
  json.close_object();
}

void write_usage(const service::Usage& usage, JsonWriter& json) {
  json.key("usage").open_object().key("prompt_tokens").integer(usage.prompt);
  json.key("total_tokens").integer(usage.prompt).close_object();
}

void write_float(float value, JsonWriter& json) {
  char text[32];
  const auto end = fmt::format_to_n(text, sizeof text, "{:.9g}", value).out;
  json.json({text, static_cast<size_t>(end - text)});
}

void write_floats(const std::vector<float>& values, JsonWriter& json) {
  json.open_array();
  for (const float value : values) write_float(value, json);
  json.close_array();
}

void write_base64(const std::vector<float>& values, JsonWriter& json) {
  static_assert(std::endian::native == std::endian::little);
  std::string text = "\"";
  text::append_base64(
      text, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  text += '"';
  json.json(text);
}

}  // namespace skiff::pooling
