// Any text, in any pieces, is read by every format with events that do not depend on the pieces.
#include "text/answer/answer_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  using namespace skiff::answer;
  if (size < 3) return 0;
  const auto& formats = call_formats();
  const auto& reasonings = reasoning_formats();
  auto options = options_for(std::string(formats[data[0] % formats.size()].name),
                             std::string(reasonings[data[1] % reasonings.size()].name));
  options->starts_in_reasoning = (data[2] & 1) != 0;
  options->one_call = (data[2] & 2) != 0;
  const bool whole = (data[2] & 4) != 0;
  const size_t piece = 1 + (data[2] >> 3);
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto at_once = events_of(options, text, whole, [&] { return text.size(); });
  SKIFF_CHECK(events_of(options, text, whole, [&] { return piece; }) == at_once);
  return 0;
}
