// Options of an engine: JSON to words, words through the table of flags. Nothing but a refusal may
// come of hostile bytes.
#include <cstddef>
#include <cstdint>

#include "apps/args.h"
#include "capi/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto words = skiff::capi::option_words({reinterpret_cast<const char*>(data), size});
  if (!words) return 0;
  try {
    const skiff::apps::Args args(skiff::apps::kLibrary, *words);
    if (!args.positional().empty()) __builtin_trap();
  } catch (const skiff::apps::UsageError&) {
    return 0;
  }
  return 0;
}
