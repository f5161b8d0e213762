// Any bytes as a template, over variables of every type, and the prompt cut inside a message: no
// crash, and no more time and memory than the limits allow.
#include "text/chat/fuzz_check_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skiff::jinja::check_template(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
