// comm/communicator.h -- a group of ranks. A group of one moves nothing, so that no caller ever
// writes `if (tp > 1)`. There are the solo group, threads of one process, threads of several
// processes over TCP (comm/nodes.h), and CUDA devices of one process (comm/devices/group.h).
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/row_exchange.h"
#include "ops/ops.h"

namespace skiff::comm {

// Thrown by the collectives of a group that has ended because another rank failed; what() is that
// rank's reason.
struct GroupEnded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Who reads a residual behind the sum that was added to it: only later sums, over the same rows, or
// other operations, too.
enum class ResidualUse { kSums, kAny };

// All ranks of a group call the same collectives in the same order. A collective belongs to the
// queue of the Ops that it is given: it sees the results of that Ops' earlier operations, and later
// operations see its result. Tensors lie where that Ops computes. Sums are taken in float32, one
// rank after the other from rank 0 on, whatever the number of rows, and are the same bits on every
// rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x, f32 or bf16, becomes its sum over all ranks, rounded once.
  virtual void all_reduce(Tensor x, Ops& ops) = 0;
  // out [rows, size * cols]: the columns of every rank's x [rows, cols], by rank. Rank r's columns
  // may lie in place already.
  virtual void all_gather(Tensor out, Tensor x, Ops& ops) = 0;

  // residual += sum of delta over ranks; out = norm(residual). A group overrides it to be faster,
  // or to add the sum before it is rounded to the dtype of delta. With kSums each row of the
  // residual may be up to date on one rank only; then all sums over these rows have the same shape
  // and the same use.
  virtual void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                               ResidualUse /*use*/, Ops& ops) {
    all_reduce(delta, ops);
    ops.add_norm(out, residual, delta, norm);
  }

  // Among the hosts of the ranks, without a queue: returns the least of all ranks' numbers, once
  // all ranks have called it.
  virtual int64_t least(int64_t mine) { return mine; }
  // Ends the group, because this rank cannot go on: the others leave the collective that they wait
  // in, or call next, with GroupEnded. The first reason counts. May be called from any thread.
  virtual void abort(const std::string& /*why*/) {}
};

// The groups that a rank belongs to: those that are cut from one model (tensor parallel), and those
// that share the experts of mixtures.
struct Mesh {
  std::unique_ptr<Communicator> tp;
  // Shared with who may end that group from outside.
  std::shared_ptr<RowExchange> experts = make_solo_exchange();
};

std::unique_ptr<Communicator> make_solo();
Mesh make_solo_mesh();

// Makes a group of `size` ranks, one for each thread of this process, whose Ops compute on the
// host. The group lives until the last of them is destroyed.
std::vector<std::unique_ptr<Communicator>> make_threads(int size);
// Returns the meshes of a tensor-parallel group, one for each rank: a solo mesh for size 1, else
// threads.
std::vector<Mesh> make_thread_meshes(int size);

}  // namespace skiff::comm
