// Renders any bytes as a template, with variables of every type, and cuts the prompt inside a
// message. Nothing may crash or take more time or memory than the limits allow.
#include "text/chat/fuzz_check_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skiff::text::check_template(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
