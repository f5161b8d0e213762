#include "ops/reference/weights.h"

#include "ops/reference/rows.h"

namespace skiff::reference {

std::vector<float> weight_row(const Linear& w, int64_t out) {
  SKIFF_CHECK(w.packing == Packing::kPlain && w.experts == 0);
  SKIFF_CHECK(!w.format.quantized() && w.format.dtype == w.weight.dtype, "{} in a tensor of {}",
              describe(w.format), name(w.weight.dtype));
  return load_row(w.weight, out);
}

Linear expert_of(const Linear& stack, int64_t index) {
  SKIFF_CHECK(index >= 0 && index < stack.experts, "expert {} of {}", index, stack.experts);
  Linear one = stack;
  one.weight = stack_entry(stack.weight, index);
  one.experts = 0;
  return one;
}

}  // namespace skiff::reference
