#include "ops/cuda/side_lane.h"

#include "ops/cuda/check.h"
#include "ops/cuda/lane_end.h"
#include "ops/cuda/quant/inputs.h"

namespace skiff::cuda {
namespace {

// Products of more rows fill the device for longer than it takes to hand over.
constexpr int64_t kMostRows = 512;
// Up to so many rows the kernel behind the join gains from starting early. With more it has more
// blocks, which take room while they wait: 8 to 32 rows were up to 1 % slower (ERNIE-4.5-21B).
constexpr int64_t kFewRows = 4;
constexpr size_t kInputBytes = size_t{16} << 20;

size_t workspace_bytes() {
  return (StreamedProducts::workspace_bytes() + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
}

}  // namespace

SideLane::SideLane(Device device, cudaStream_t main, bool portable, bool one_order)
    : main_(main),
      scratch_(device, workspace_bytes() + kInputBytes),
      products_(scratch_.data(), {scratch_.data() + workspace_bytes(), kInputBytes}, portable,
                one_order) {
  products_.leave_room();
  int least = 0, most = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "asking for priorities of streams");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, most),
        "making a second stream");
  for (cudaEvent_t* event : {&begin_, &end_})
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
}

SideLane::~SideLane() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : {begin_, end_}) cudaEventDestroy(event);
  cudaStreamDestroy(stream_);
}

bool SideLane::takes(const Tensor& x, const Linear& w, bool gated) const {
  if (x.rows() == 0 || x.rows() > kMostRows || !products_.takes(x, w, gated)) return false;
  return !changes_rows(w) ||
         met_rows_that_fit(met_by(w), products_.inputs().bytes, x.cols()) >= x.rows();
}

void SideLane::product(Tensor out, Tensor x, const Linear& w) {
  open(x.rows());
  products_.product(out, x, w, stream_);
}

void SideLane::gated_product(Tensor out, Tensor x, const Linear& w, Act act) {
  open(x.rows());
  products_.gated_product(out, x, w, act, stream_);
}

void SideLane::open(int64_t rows) {
  few_ = (few_ || !open_) && rows <= kFewRows;
  if (open_) return;
  open_ = true;
  check(cudaEventRecord(begin_, main_), "marking where lanes part");
  check(cudaStreamWaitEvent(stream_, begin_), "having a lane wait for the other");
}

void SideLane::join() {
  if (!open_) return;
  open_ = false;
  if (few_)
    record_end(end_, stream_);
  else
    check(cudaEventRecord(end_, stream_), "marking where lanes join");
  check(cudaStreamWaitEvent(main_, end_), "having a lane wait for the other");
}

}  // namespace skiff::cuda
