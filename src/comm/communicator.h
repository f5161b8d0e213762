// comm/communicator.h -- a group of ranks. A group of one moves nothing, so that no caller ever
// writes `if (tp > 1)`. Only the solo group exists so far; threads, MPI and NCCL join here.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "ops/ops.h"

namespace skiff {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(Tensor x) = 0;
  virtual void all_gather(Tensor out, Tensor x) = 0;
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;  // host memory: the StepPlan

  // residual += sum of delta over ranks; out = norm(residual). Always right as written; a
  // backend overrides it only to be faster.
  virtual void reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                               Ops& ops) {
    all_reduce(delta);
    ops.add_norm(out, residual, delta, norm);
  }
};

// Tensor parallel; data and expert groups join when they exist.
struct Mesh {
  std::unique_ptr<Communicator> tp;
};

std::unique_ptr<Communicator> make_solo();
Mesh make_solo_mesh();

}  // namespace skiff
