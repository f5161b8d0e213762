// Any text as an address, and any text as a redirect, is read or refused; what is read is read
// again from its own text as the same.
#include "fetch/url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto base = fetch::parse_url("https://host.example:8443/a/b?c");
  for (const auto& url : {fetch::parse_url(text), fetch::resolve(*base, text)}) {
    if (!url) continue;
    const std::string shown = (*url).text();
    const auto again = fetch::parse_url(shown);
    SKIFF_CHECK(again && (*again).text() == shown, "{}", shown);
  }
  return 0;
}
