#include "comm/devices/device_rank.h"

#include "base/check.h"

namespace skiff::devices {
namespace {

// Rows of which a slot has room for all.
int64_t most_rows(const Tensor& x) { return static_cast<int64_t>(kSlotBytes) / row_bytes(x); }

}  // namespace

void DeviceRank::all_reduce(Tensor x, Ops& ops) {
  member_.in_pieces(x.rows(), most_rows(x), ops, [&](int64_t row, int rows, cudaStream_t stream) {
    start_all_reduce(member_.exchange(), matrix(x.row_range(row, rows)), rows,
                     static_cast<int>(x.cols()), stream);
  });
}

void DeviceRank::all_gather(Tensor out, Tensor x, Ops& ops) {
  SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
  SKIFF_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32, "only f32 is gathered");
  member_.in_pieces(x.rows(), most_rows(x), ops, [&](int64_t row, int rows, cudaStream_t stream) {
    start_all_gather(member_.exchange(), matrix(out.row_range(row, rows)),
                     matrix(x.row_range(row, rows)), rows, static_cast<int>(x.cols()), stream);
  });
}

void DeviceRank::reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                                 comm::ResidualUse use, Ops& ops) {
  SKIFF_CHECK_EQ(out.rows(), delta.rows());
  SKIFF_CHECK_EQ(residual.cols(), delta.cols());
  SKIFF_CHECK(out.dtype == delta.dtype && residual.dtype == DType::kF32);
  const bool owners = use == comm::ResidualUse::kSums && delta.rows() >= size() &&
                      delta.rows() * row_bytes(delta) >= member_.shared().owners_from;
  const int64_t most = owners ? most_rows_by_owners(size(), row_bytes(delta)) : most_rows(delta);
  member_.in_pieces(delta.rows(), most, ops, [&](int64_t row, int rows, cudaStream_t stream) {
    const auto part = [&](const Tensor& t) { return matrix(t.row_range(row, rows)); };
    const auto start = owners && rows >= size() ? start_add_norm_by_owners : start_reduce_add_norm;
    start(member_.exchange(),
          {.out = part(out),
           .residual = part(residual),
           .delta = part(delta),
           .weight = norm.weight.as<float>(),
           .eps = norm.eps,
           .rows = rows,
           .cols = static_cast<int>(delta.cols())},
          stream);
  });
}

}  // namespace skiff::devices
