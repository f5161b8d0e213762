#include "comm/devices/member.h"

#include "base/check.h"
#include "ops/cuda/check.h"

namespace skiff::devices {

Exchange DeviceGroup::Shared::exchange(int rank) const {
  const int device = devices[static_cast<size_t>(rank)];
  Exchange exchange{
      .state = reinterpret_cast<ExchangeState*>(states[static_cast<size_t>(rank)].data()),
      .signal = reinterpret_cast<const ExchangeSignal*>(signal.data()),
      .rank = rank,
      .size = static_cast<int>(devices.size()),
      .shares_device = std::ranges::count(devices, device) > 1};
  for (size_t to = 0; to < boxes.size(); ++to) exchange.box[to] = boxes[to]->data();
  return exchange;
}

// Kernels that wait for a rank that is gone look at the signal.
void DeviceGroup::Shared::end(const std::string& reason) {
  {
    const std::lock_guard lock(mutex);
    if (!ended) why = reason;
    ended = true;
  }
  auto* to = reinterpret_cast<ExchangeSignal*>(signal.data());
  std::atomic_ref(to->stop).store(1, std::memory_order_release);
}

void DeviceGroup::Shared::throw_if_ended() {
  if (!ended) return;
  const std::lock_guard lock(mutex);
  throw comm::GroupEnded(why);
}

void Member::abort(const std::string& why) {
  shared_->end(why);
  hosts_->abort(why);
}

cuda::CudaOps& Member::ops_here(Ops& ops) const {
  auto* own = dynamic_cast<cuda::CudaOps*>(&ops);
  SKIFF_CHECK(own != nullptr && ops.device().index == device(),
              "{} is not the backend of device {}", ops.name(), device());
  return *own;
}

bool Member::is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "asking whether a step is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

void Member::meet(cudaStream_t stream) const {
  cuda::check(cudaStreamSynchronize(stream), "waiting for an operation");
  hosts_->least(0);
}

cuda::Matrix matrix(const Tensor& t) {
  SKIFF_CHECK(t.dtype == DType::kF32 || t.dtype == DType::kBF16, "a collective of {}",
              name(t.dtype));
  return {.data = t.data,
          .stride = t.row_stride,
          .type = t.dtype == DType::kF32 ? cuda::Float::kF32 : cuda::Float::kBF16};
}

int64_t row_bytes(const Tensor& x) {
  return std::max<int64_t>(1, x.cols() * static_cast<int64_t>(bytes(x.dtype)));
}

}  // namespace skiff::devices
