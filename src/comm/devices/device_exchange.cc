#include "comm/devices/device_exchange.h"

#include <utility>

#include "base/check.h"

namespace skiff::devices {
namespace {

// On two H200s what fits a slot is there sooner by elements that are polled than through rings.
bool are_many(int64_t most, const Tensor& x) {
  return most * row_bytes(x) > static_cast<int64_t>(kRowsBytes);
}

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
  member_.call(ops, [&](cudaStream_t stream) {
    if (rows.most == 0) return;
    const auto start = are_many(rows.most, x) ? start_dispatch_many_rows : start_dispatch_rows;
    start(member_.exchange(),
          {.out = matrix(out),
           .x = matrix(x),
           .live = own.live(),
           .starts = starts(),
           .rows = static_cast<int>(x.rows()),
           .out_rows = static_cast<int>(rows.sum),
           .most = static_cast<int>(rows.most),
           .cols = static_cast<int>(x.cols())},
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
  member_.call(ops, [&](cudaStream_t stream) {
    if (all.most == 0) return;
    const auto start = are_many(all.most, parts) ? start_combine_many_rows : start_combine_rows;
    start(member_.exchange(),
          {.out = matrix(out),
           .parts = matrix(parts),
           .starts = starts(),
           .rows = static_cast<int>(rows),
           .most = static_cast<int>(all.most),
           .cols = static_cast<int>(parts.cols())},
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
