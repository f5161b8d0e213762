#include "ops/reference/math.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"

namespace skiff {

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<reference::ReferenceOps>(); }

namespace reference {

void ReferenceOps::embed(Tensor out, Tensor table, Tensor ids) { gather_rows(out, table, ids); }

void ReferenceOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  SKIFF_CHECK_EQ(out.rows(), rows.rows());
  for (int64_t r = 0; r < out.rows(); ++r) store_row(out, r, load_row(x, rows.as<int32_t>()[r]));
}

void ReferenceOps::add(Tensor out, Tensor x) {
  for (int64_t r = 0; r < out.rows(); ++r) {
    std::vector<float> sum = load_row(out, r);
    const std::vector<float> more = load_row(x, r);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    store_row(out, r, sum);
  }
}

void ReferenceOps::relu(Tensor x) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    std::vector<float> row = load_row(x, r);
    for (float& value : row)
      if (value < 0) value = 0;
    store_row(x, r, row);
  }
}

void ReferenceOps::add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) {
  if (delta) add(residual, delta);
  for (int64_t r = 0; r < out.rows(); ++r) {
    std::vector<float> x = load_row(residual, r);
    rms_norm(x, norm);
    store_row(out, r, x);
  }
}

void ReferenceOps::gated_act(Tensor out, Tensor gate_up, Act act) {
  const auto width = static_cast<size_t>(out.cols());
  for (int64_t r = 0; r < out.rows(); ++r) {
    const std::vector<float> both = load_row(gate_up, r);
    std::vector<float> y(width);
    for (size_t i = 0; i < width; ++i) {
      y[i] = static_cast<float>(activate(both[i], act) * both[width + i]);
    }
    store_row(out, r, y);
  }
}

}  // namespace reference
}  // namespace skiff
