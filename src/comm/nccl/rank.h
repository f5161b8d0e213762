// comm/nccl/rank.h -- the Communicator of one rank of a Group.
#pragma once
#include <memory>
#include <string>

#include "comm/nccl/shared.h"
#include "comm/nccl/sums.h"
#include "ops/cuda/backend.h"
#include "tensor/memory.h"

namespace skiff::nccl {

// A sum is taken in one of two ways, with the same bits. Every rank gathers the parts of all, and
// adds them up. Or the rows are dealt to the ranks in equal runs: an owner gets the parts of its
// rows, adds them up and computes their norms, and all ranks gather these; so about two of a row
// cross each rank's link, where gathering takes as many as there are ranks.
class Rank final : public comm::Communicator {
 public:
  // What a rank sends to another one at a time; more is sent piece by piece.
  static constexpr int64_t kPieceBytes = int64_t{8} << 20;

  // `memory` is on the rank's device and has room for a piece of every rank.
  Rank(std::shared_ptr<Group::Shared> shared, Link& link, Buffer memory,
       std::unique_ptr<comm::Communicator> hosts);

  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  void all_reduce(Tensor x, Ops& ops) override;
  void all_gather(Tensor out, Tensor x, Ops& ops) override;
  void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                       comm::ResidualUse use, Ops& ops) override;
  int64_t least(int64_t mine) override { return hosts_->least(mine); }
  void abort(const std::string& why) override;

  // For start-up: sends a pattern to all others, in both ways, and looks at what has come.
  void greet();

 private:
  template <class F>
  void collectively(Ops& ops, F start);
  bool by_owners(const Tensor& delta, comm::ResidualUse use) const;
  Gathered gathered(int64_t stride) const {
    return {.data = memory_.data(), .stride = stride, .rank = rank(), .size = size()};
  }
  const void* contiguous(const Tensor& x, cudaStream_t stream);
  void gather_and_add(const Tensor& out, const Tensor& residual, const Tensor& delta,
                      const Norm& norm, cudaStream_t stream);
  void add_by_owners(const Tensor& out, const Tensor& residual, const Tensor& delta,
                     const Norm& norm, cudaStream_t stream);

  const std::shared_ptr<Group::Shared> shared_;
  Link& link_;
  const std::unique_ptr<comm::Communicator> hosts_;
  const Buffer memory_;  // [size] pieces: what was gathered, by rank
};

}  // namespace skiff::nccl
