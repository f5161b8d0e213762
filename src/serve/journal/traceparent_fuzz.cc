// Any header is read or ignored; what is read has ids of the right form.
#include "base/check.h"
#include "serve/journal/traceparent.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parent = skiff::journal::parse_traceparent(text);
  if (!parent) return 0;
  SKIFF_CHECK(parent->trace_id.size() == 32 && parent->span_id.size() == 16);
  SKIFF_CHECK(parent->trace_id != std::string(32, '0') && parent->span_id != std::string(16, '0'));
  return 0;
}
