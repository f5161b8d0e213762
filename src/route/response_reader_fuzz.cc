// Reads arbitrary bytes as a backend's response, whole and in pieces: both must give the same.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "route/response_reader.h"

namespace {

// What a reader makes of the bytes; `step`: how many it gets at a time.
std::string reading(std::string_view bytes, size_t step) {
  skiff::route::ResponseReader reader;
  std::string body;
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() && !reader.done() && !reader.failed(); at += step)
    taken += reader.take(bytes.substr(at, step), &body);
  SKIFF_CHECK(taken <= bytes.size());
  reader.end();
  SKIFF_CHECK(reader.done() != reader.failed());
  std::string seen = std::to_string(reader.head().status) + " " + reader.why() + " " + body;
  for (const auto& [name, value] : reader.head().headers) seen += name + "=" + value + "\n";
  return reader.done() ? seen + std::to_string(taken) : seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  SKIFF_CHECK(reading(bytes, bytes.size() + 1) == reading(bytes, 1 + data[0] % 16));
  return 0;
}
