// Takes any bytes as a regular expression.
#include "grammar/fuzz_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using skiff::grammar::ConstraintKind;
  skiff::grammar::testing::follow_any(ConstraintKind::kRegex,
                                      {reinterpret_cast<const char*>(data), size});
  return 0;
}
