// serve/pooling/write.h -- parts of replies that several routes have.
#pragma once
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "serve/pooling/route.h"

namespace skiff::pooling {

// Writes {"id", "object", "created", "model" and opens "data" for a list of results.
void open_list(const Envelope& envelope, const char* prefix, const char* object, JsonWriter& json);
// Closes that list and writes the usage and the end.
void close_list(const service::Usage& usage, JsonWriter& json);
void write_usage(const service::Usage& usage, JsonWriter& json);
// Nine digits, which read back as the same float.
void write_float(float value, JsonWriter& json);
void write_floats(const std::vector<float>& values, JsonWriter& json);
// The same numbers as little-endian floats in base64, as a string.
void write_base64(const std::vector<float>& values, JsonWriter& json);

}  // namespace skiff::pooling
