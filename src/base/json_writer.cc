#include "base/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/check.h"
#include "base/json_text.h"

namespace skiff {

JsonWriter& JsonWriter::key(std::string_view name) {
  begin_value();
  append_json_string(out_, name);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  begin_value();
  append_json_string(out_, text);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  begin_value();
  const fmt::format_int digits(value);
  out_.append(digits.data(), digits.size());
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  SKIFF_CHECK(std::isfinite(value), "JSON has no {}", value);
  begin_value();
  const size_t begin = out_.size();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  if (out_.find_first_of(".e", begin) == std::string::npos) out_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::json(std::string_view text) {
  begin_value();
  out_ += text;
  return *this;
}

}  // namespace skiff
