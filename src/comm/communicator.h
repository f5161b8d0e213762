// comm/communicator.h -- a group of ranks. A group of one moves nothing, so that no caller ever
// writes `if (tp > 1)`. Only the solo group exists so far; threads, MPI and NCCL join here.
#pragma once
#include <memory>

#include "ops/ops.h"

namespace skiff::comm {

// All ranks of a group call the same collectives in the same order. A collective belongs to the
// queue of the Ops that it is given: it sees the results of that Ops' earlier operations, and later
// operations see its result. Tensors lie where that Ops computes.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x becomes its sum over all ranks, added in the order of ranks.
  virtual void all_reduce(Tensor x, Ops& ops) = 0;
  // out [rows, size * cols]: the columns of every rank's x [rows, cols], by rank. Rank r's columns
  // may lie in place already.
  virtual void all_gather(Tensor out, Tensor x, Ops& ops) = 0;

  // residual += sum of delta over ranks; out = norm(residual). Always right as written; a
  // backend overrides it only to be faster.
  virtual void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                               Ops& ops) {
    all_reduce(delta, ops);
    ops.add_norm(out, residual, delta, norm);
  }
};

// The groups that a rank belongs to. Tensor parallel; data and expert groups join when they exist.
struct Mesh {
  std::unique_ptr<Communicator> tp;
};

std::unique_ptr<Communicator> make_solo();
Mesh make_solo_mesh();

}  // namespace skiff::comm
