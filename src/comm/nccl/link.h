// comm/nccl/link.h -- one rank's place in a group of NCCL. It moves bytes and adds nothing up.
#pragma once
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

#include "comm/nccl/library.h"

namespace skiff::nccl {

// The communicator of NCCL blocks, because one that does not starts a thread for each operation.
// So only abort() ends a wait for a rank that is gone: of the host, and of kernels on the device.
class Link {
 public:
  // Returns once all ranks have called it with the same id. The device is the calling thread's
  // current one. Throws std::runtime_error.
  Link(const Library& nccl, const UniqueId& id, int rank, int size);
  Link(const Link&) = delete;
  // Recorded steps with these operations must be gone.
  ~Link();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // All ranks call these in the same order; they start on `stream`, and may be recorded. Both throw
  // std::runtime_error, and comm::GroupEnded after abort().
  //
  // all [size * bytes]: the `bytes` of every rank, by rank. Those of this one may lie in place.
  void all_gather(const void* mine, void* all, size_t bytes, Stream stream);
  // Piece r of `to` becomes piece rank() of rank r's `from`; each has `bytes`. Pieces of this rank
  // itself stay as they are.
  void all_to_all(const std::byte* from, std::byte* to, size_t bytes, Stream stream);

  // Returns what NCCL has noticed behind a call that had succeeded, or nothing.
  std::string trouble();
  // Has kernels and calls that wait leave, with results that have no meaning. Returns when NCCL has
  // let go of everything, which may take until recorded steps are gone; gives up, and returns
  // false, where a call of this rank goes on for longer than `patience`. From any thread.
  bool abort(const std::string& why, std::chrono::milliseconds patience);

 private:
  void check(Outcome outcome, const char* doing) const;
  void need_whole() const;

  const Library nccl_;
  const int rank_, size_;
  Comm comm_ = nullptr;
  std::timed_mutex calling_;  // held during a call of NCCL with comm_
  std::string why_;           // why it was aborted; guarded by calling_
};

// Makes the id of a group; its maker's host is where the ranks find each other.
UniqueId make_id(const Library& nccl);

}  // namespace skiff::nccl
