// comm/devices/device_exchange.h -- the RowExchange of one rank of a DeviceGroup.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/devices/member.h"
#include "comm/row_exchange.h"

namespace skiff::devices {

// Rows that are no padding come first in what dispatch() returns. How many each rank has is told by
// devices to devices, so hosts need only agree on the most there may be.
class DeviceExchange final : public comm::RowExchange {
 public:
  DeviceExchange(std::shared_ptr<DeviceGroup::Shared> shared,
                 std::unique_ptr<comm::Communicator> hosts);

  int rank() const override { return member_.rank(); }
  int size() const override { return member_.size(); }
  void expect(const std::optional<comm::RowsOfRanks>& rows) override { expected_ = rows; }
  Tensor dispatch(Tensor x, Arena& arena, Ops& ops) override;
  Tensor combine(Tensor parts, int64_t rows, Arena& arena, Ops& ops) override;
  void begin_service() override;
  int64_t least(int64_t mine) override { return member_.hosts().least(mine); }
  void abort(const std::string& why) override { member_.abort(why); }

 private:
  comm::RowsOfRanks rows_of_ranks(int64_t mine) const;
  int32_t* starts() const { return reinterpret_cast<int32_t*>(starts_.data()); }

  Member member_;
  Buffer starts_;  // [size + 1] i32 on the device: where each rank's rows begin
  std::optional<comm::RowsOfRanks> expected_;
};

}  // namespace skiff::devices
