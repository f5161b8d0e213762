// base/json_writer.h -- writes JSON into a text piece by piece, for values that are too large, or
// code that is too hot, to build a tree first.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace skiff {

// Appends to a text. The caller opens, closes and names in the right order; the writer inserts the
// commas.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& open_object() { return open('{'); }
  JsonWriter& close_object() { return close('}'); }
  JsonWriter& open_array() { return open('['); }
  JsonWriter& close_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);  // accepts any bytes, see append_json_string
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);  // finite; reads back as the same double, never as an integer
  JsonWriter& null() { return json("null"); }
  JsonWriter& json(std::string_view text);  // the text must be a JSON value
  // The text must be one or more members of an object, with commas between them.
  JsonWriter& members(std::string_view text) { return json(text); }

 private:
  void begin_value() {
    if (needs_comma_) out_ += ',';
    needs_comma_ = true;
  }
  JsonWriter& open(char bracket) {
    begin_value();
    out_ += bracket;
    needs_comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_ += bracket;
    needs_comma_ = true;
    return *this;
  }

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace skiff
