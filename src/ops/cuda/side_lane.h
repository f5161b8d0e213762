// ops/cuda/side_lane.h -- a second stream for operations that need nothing of those in the first
// (Ops::begin_aside): in a recorded step, a branch of the graph.
//
// A kernel of few rows takes some microseconds whatever it computes, and leaves multiprocessors
// idle while it begins and ends. A mixture's router, the choice of experts and the copies of rows
// are such kernels, and so are the products of a shared expert: in two lanes they take as long as
// the longer lane. Kernels of the main lane start early (launch.cuh) and take multiprocessors while
// they wait, so this lane's have a higher priority: they get what becomes free. And their blocks
// are small, so that they run beside those of the main lane, which would otherwise keep them out,
// or wait for them (StreamedProducts::leave_room).
#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/linear/stream.h"
#include "tensor/memory.h"

namespace skiff::cuda {

// Products of quantized weights by few rows. Driven by the thread that drives the first stream.
class SideLane {
 public:
  // `main`, which must outlive this object, is the first stream, of the current device.
  SideLane(Device device, cudaStream_t main, bool portable, bool one_order);
  ~SideLane();
  SideLane(const SideLane&) = delete;
  SideLane& operator=(const SideLane&) = delete;

  // Returns whether product(), or gated_product(), takes the operands and is worth a lane.
  bool takes(const Tensor& x, const Linear& w, bool gated) const;
  // These do what StreamedProducts says. The first since join() begins once all that was started
  // in the main stream is complete.
  void product(Tensor out, Tensor x, const Linear& w);
  void gated_product(Tensor out, Tensor x, const Linear& w, Act act);

  // Returns whether something was started since the last join().
  bool is_open() const { return open_; }
  // What is started in the main stream from now on begins once this lane's products are complete.
  void join();

 private:
  void open(int64_t rows);  // for a product of so many

  cudaStream_t main_, stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Buffer scratch_;  // apart from the main lane's, whose products use theirs at the same time
  StreamedProducts products_;
  bool open_ = false;
  bool few_ = false;  // all products since join() had few rows
};

}  // namespace skiff::cuda
