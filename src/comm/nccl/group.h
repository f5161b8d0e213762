// comm/nccl/group.h -- ranks that each compute on a CUDA device of their own, in processes on
// several hosts, or several processes on one. NCCL moves what they add up, over whatever joins
// their devices; nothing is added up by it (comm/nccl/rank.h).
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl/library.h"

namespace skiff::nccl {

// Returns why there can be no such group in this process; nothing where there can.
std::string why_impossible();

// The ranks of one process. Collectives take f32 and bf16 of any shape and stride; all_gather takes
// f32. An Ops is that of make_cuda_ops() for the rank's device. Sums and norms are those of
// devices::DeviceGroup, bit for bit: the same for every number of rows, on every rank, for every
// number of processes, and whether a step is replayed or not.
//
// Where several ranks are in one process, their threads meet before and after each collective until
// begin_service(), unless it is being recorded: so none loads a kernel or allocates while the
// device of another waits. Processes need not meet: what one must do to come to a collective does
// not depend on another's having passed it.
class Group {
 public:
  struct Settings {
    int first_device = 0;
    int ranks = 1;  // in this process, on first_device, first_device + 1, ...
    // A sum of so many bytes and more is taken row by row by the row's owner, with the same bits,
    // where the residual's use allows it (ResidualUse::kSums). None: see owners_from().
    std::optional<int64_t> owners_from = {};
    // Called, from a thread of the group, when NCCL has noticed a failure; and where ranks may wait
    // for others in a group that has ended, and have not left some seconds later. May be empty.
    std::function<void(const std::string& why)> failed = nullptr;
  };
  // Throws LoadError where there is no NCCL.
  explicit Group(const Settings& settings);
  Group(const Group&) = delete;
  ~Group();  // after the meshes, and what has recorded their collectives

  // Returns the size from which on owners are taken. With two ranks as many bytes cross the link
  // either way, and owners gain once a sum is more than a rank sends at a time: measured on two
  // H200s. With more ranks they save bytes; where that pays is an estimate.
  static constexpr int64_t owners_from(int size) { return size > 2 ? 1 << 20 : 8 << 20; }

  // For one process of the group, which tells it to the others.
  UniqueId make_id() const;
  // Makes the meshes of the ranks here. `hosts` are the threads that drive the ranks of all
  // processes, by the same numbers: those of the ranks here, in order. Returns once all processes
  // have called it, and what each rank sends has come to all others, small and large; so NCCL has
  // taken its memory by then. Called once. Where a rank cannot join, throws comm::GroupEnded with
  // the reason on all.
  std::vector<comm::Mesh> connect(const UniqueId& id,
                                  std::vector<std::unique_ptr<comm::Communicator>> hosts);
  void begin_service();
  // Ends the group because of another process: who waits here leaves, with comm::GroupEnded or with
  // results that have no meaning. From any thread; does not wait.
  void end(const std::string& why);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace skiff::nccl
