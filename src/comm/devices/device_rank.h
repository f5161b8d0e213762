// comm/devices/device_rank.h -- the Communicator of one rank of a DeviceGroup.
#pragma once
#include <memory>
#include <string>

#include "comm/devices/member.h"

namespace skiff::devices {

class DeviceRank final : public comm::Communicator {
 public:
  DeviceRank(std::shared_ptr<DeviceGroup::Shared> shared, std::unique_ptr<comm::Communicator> hosts)
      : member_(std::move(shared), std::move(hosts)) {}

  int rank() const override { return member_.rank(); }
  int size() const override { return member_.size(); }
  void all_reduce(Tensor x, Ops& ops) override;
  void all_gather(Tensor out, Tensor x, Ops& ops) override;
  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       comm::ResidualUse use, Ops& ops) override;
  int64_t least(int64_t mine) override { return member_.hosts().least(mine); }
  void abort(const std::string& why) override { member_.abort(why); }

 private:
  Member member_;
};

}  // namespace skiff::devices
