#include "ops/reference/math.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"
#include "ops/reference/weights.h"

namespace skiff::reference {

void ReferenceOps::linear(Tensor out, Tensor x, const Linear& w) {
  SKIFF_CHECK(multiplies(w.format), "{}", describe(w.format));
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), w.weight.rows());
  std::vector<std::vector<float>> inputs;
  for (int64_t r = 0; r < x.rows(); ++r) inputs.push_back(input_row(w, load_row(x, r)));
  for (int64_t o = 0; o < out.cols(); ++o) {
    const std::vector<float> weight = weight_row(w, o);
    const double bias = w.bias ? w.bias.as<float>()[o] : 0;
    for (int64_t r = 0; r < out.rows(); ++r) {
      store(out, r, o, dot(inputs[static_cast<size_t>(r)], weight) + bias);
    }
  }
}

}  // namespace skiff::reference
