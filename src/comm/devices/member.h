// comm/devices/member.h -- how one rank of a DeviceGroup starts a collective.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/devices/exchange.h"
#include "comm/devices/group.h"
#include "comm/devices/shared_memory.h"
#include "ops/cuda/backend.h"
#include "tensor/memory.h"

namespace skiff::devices {

// What the ranks of a group have in common. Its memory is freed when the last of them is gone.
struct DeviceGroup::Shared {
  Shared(std::vector<int> devices, int64_t owners_from);

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

class Member {
 public:
  // `hosts` are the threads that drive the ranks, by the same numbers.
  Member(std::shared_ptr<DeviceGroup::Shared> shared, std::unique_ptr<comm::Communicator> hosts)
      : shared_(std::move(shared)),
        hosts_(std::move(hosts)),
        exchange_(shared_->exchange(rank())) {}

  int rank() const { return hosts_->rank(); }
  int size() const { return hosts_->size(); }
  int device() const { return shared_->devices[static_cast<size_t>(rank())]; }
  const Exchange& exchange() const { return exchange_; }
  DeviceGroup::Shared& shared() const { return *shared_; }
  comm::Communicator& hosts() const { return *hosts_; }
  void abort(const std::string& why);
  // Returns `ops` as the backend of this rank's device.
  cuda::CudaOps& ops_here(Ops& ops) const;

  // Starts a collective: start(stream).
  template <class F>
  void call(Ops& ops, F start) const {
    shared_->throw_if_ended();
    const cudaStream_t stream = ops_here(ops).queue();
    const bool meets = !shared_->in_service && !is_recording(stream);
    if (meets) meet(stream);
    start(stream);
    if (meets) meet(stream);
  }
  // Starts one for at most `most` of `rows` rows at a time: start(row, rows, stream).
  template <class F>
  void in_pieces(int64_t rows, int64_t most, Ops& ops, F start) const {
    SKIFF_CHECK(most > 0, "a row does not fit a slot");
    call(ops, [&](cudaStream_t stream) {
      for (int64_t row = 0; row < rows; row += most)
        start(row, static_cast<int>(std::min(most, rows - row)), stream);
    });
  }

 private:
  static bool is_recording(cudaStream_t stream);
  void meet(cudaStream_t stream) const;

  const std::shared_ptr<DeviceGroup::Shared> shared_;
  const std::unique_ptr<comm::Communicator> hosts_;
  const Exchange exchange_;
};

// How kernels see a tensor of f32 or bf16, and the bytes of a row; at least 1.
cuda::Matrix matrix(const Tensor& t);
int64_t row_bytes(const Tensor& x);

}  // namespace skiff::devices
