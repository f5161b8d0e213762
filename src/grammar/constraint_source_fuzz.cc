#include "base/check.h"
#include "grammar/constraint.h"

// What is read is written as something that reads the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::grammar;
  const auto one = read_constraint_source({reinterpret_cast<const char*>(data), size});
  if (!one) return 0;
  const auto again = read_constraint_source(constraint_source(*one));
  SKIFF_CHECK(again && *again == *one, "a constraint's source does not come back");
  return 0;
}
