// Any header value is judged without a crash, and adding what is looked for finds it.
#include "serve/page/accept.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  const std::string list(reinterpret_cast<const char*>(data), size);
  std::string lower = list;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const bool named = page::accepts_named(list, "text/html");
  SKIFF_CHECK(!named || lower.find("text/html") != std::string::npos);
  SKIFF_CHECK(page::accepts_named(list + ",text/html", "text/html"));
  const bool matches = page::lists_etag(list, "\"tag\"");
  SKIFF_CHECK(!matches || list.find("\"tag\"") != std::string::npos ||
              list.find('*') != std::string::npos);
  SKIFF_CHECK(page::lists_etag(list + ", W/\"tag\"", "\"tag\""));
  return 0;
}
