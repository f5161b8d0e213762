#include "comm/devices/device_exchange.h"

#include <utility>

#include "base/check.h"

namespace skiff::devices {
namespace {

// Rows of a piece: a slot has room for so many.
int64_t most_rows(const Tensor& x) { return static_cast<int64_t>(kRowsBytes) / row_bytes(x); }

}  // namespace

DeviceExchange::DeviceExchange(std::shared_ptr<DeviceGroup::Shared> shared,
                               std::unique_ptr<comm::Communicator> hosts)
    : member_(std::move(shared), std::move(hosts)),
      starts_(Device{Device::kCuda, static_cast<int8_t>(member_.device())},
              (kMaxDevices + 1) * sizeof(int32_t)) {}

comm::RowsOfRanks DeviceExchange::rows_of_ranks(int64_t mine) const {
  const comm::RowsOfRanks rows =
      expected_.value_or(comm::RowsOfRanks{.most = mine, .sum = mine * size()});
  SKIFF_CHECK(mine <= rows.most && rows.sum <= rows.most * size(),
              "{} rows where ranks have at most {}, and {} together", mine, rows.most, rows.sum);
  return rows;
}

Tensor DeviceExchange::dispatch(Tensor x, Arena& arena, Ops& ops) {
  const comm::RowsOfRanks rows = rows_of_ranks(x.rows());
  const Tensor out = arena.take(x.dtype, {rows.sum, x.cols()});
  cuda::CudaOps& own = member_.ops_here(ops);
  member_.in_pieces(rows.most, most_rows(x), ops, [&](int64_t row, int count, cudaStream_t stream) {
    start_dispatch_rows(member_.exchange(),
                        {.out = matrix(out),
                         .x = matrix(x),
                         .live = own.live(),
                         .starts = starts(),
                         .rows = static_cast<int>(x.rows()),
                         .out_rows = static_cast<int>(rows.sum),
                         .cols = static_cast<int>(x.cols()),
                         .begin = static_cast<int>(row),
                         .count = count},
                        stream);
  });
  own.route_only(starts() + size());
  return out;
}

// Mixtures that a replica has for itself, as that of a module that drafts, route its own rows
// again.
Tensor DeviceExchange::combine(Tensor parts, int64_t rows, Arena& arena, Ops& ops) {
  const comm::RowsOfRanks all = rows_of_ranks(rows);
  SKIFF_CHECK_EQ(parts.rows(), all.sum);
  const Tensor out = arena.take(parts.dtype, {rows, parts.cols()});
  cuda::CudaOps& own = member_.ops_here(ops);
  member_.in_pieces(all.most, most_rows(parts), ops,
                    [&](int64_t row, int count, cudaStream_t stream) {
                      start_combine_rows(member_.exchange(),
                                         {.out = matrix(out),
                                          .parts = matrix(parts),
                                          .starts = starts(),
                                          .rows = static_cast<int>(rows),
                                          .cols = static_cast<int>(parts.cols()),
                                          .begin = static_cast<int>(row),
                                          .count = count},
                                         stream);
                    });
  own.route_only(own.live());
  return out;
}

void DeviceExchange::begin_service() {
  member_.hosts().least(0);
  member_.shared().in_service = true;
}

}  // namespace skiff::devices
