// comm/devices/device_rank.h -- the Communicator of one rank of a DeviceGroup.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/devices/exchange.h"
#include "comm/devices/group.h"
#include "comm/devices/shared_memory.h"
#include "tensor/memory.h"

namespace skiff::devices {

// What the ranks of a group have in common. Its memory is freed when the last of them is gone.
struct DeviceGroup::Shared {
  Shared(int first_device, int size, int64_t owners_from);

  const std::vector<int> devices;                    // by rank
  const int64_t owners_from;                         // bytes of a sum
  std::vector<std::unique_ptr<SharedMemory>> boxes;  // mailboxes, by rank
  std::vector<Buffer> states;                        // an ExchangeState for each rank
  Buffer signal;                                     // an ExchangeSignal
  std::atomic<bool> in_service = false, ended = false;
  std::mutex mutex;
  std::string why;  // guarded by mutex

  Exchange exchange(int rank) const;
  void end(const std::string& reason);
  void throw_if_ended();
};

class DeviceRank final : public comm::Communicator {
 public:
  // `hosts` are the threads that drive the ranks, by the same numbers.
  DeviceRank(std::shared_ptr<DeviceGroup::Shared> shared,
             std::unique_ptr<comm::Communicator> hosts);

  int rank() const override { return hosts_->rank(); }
  int size() const override { return hosts_->size(); }
  void all_reduce(Tensor x, Ops& ops) override;
  void all_gather(Tensor out, Tensor x, Ops& ops) override;
  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       comm::ResidualUse use, Ops& ops) override;
  int64_t least(int64_t mine) override { return hosts_->least(mine); }
  void abort(const std::string& why) override;

 private:
  // Starts a collective for at most `most` rows of x at a time: start(row, rows, stream).
  template <class F>
  void in_pieces(const Tensor& x, int64_t most, Ops& ops, F start);

  const std::shared_ptr<DeviceGroup::Shared> shared_;
  const std::unique_ptr<comm::Communicator> hosts_;
  const Exchange exchange_;
};

}  // namespace skiff::devices
