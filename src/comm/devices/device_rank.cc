#include "comm/devices/device_rank.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ops/cuda/backend.h"
#include "ops/cuda/check.h"

namespace skiff::devices {
namespace {

cuda::Matrix matrix(const Tensor& t) {
  SKIFF_CHECK(t.dtype == DType::kF32 || t.dtype == DType::kBF16, "a collective of {}",
              name(t.dtype));
  return {.data = t.data,
          .stride = t.row_stride,
          .type = t.dtype == DType::kF32 ? cuda::Float::kF32 : cuda::Float::kBF16};
}

cuda::CudaOps& cuda_ops(Ops& ops, int device) {
  auto* own = dynamic_cast<cuda::CudaOps*>(&ops);
  SKIFF_CHECK(own != nullptr && ops.device().index == device, "{} is not the backend of device {}",
              ops.name(), device);
  return *own;
}

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "asking whether a step is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

int64_t row_bytes(const Tensor& x) {
  return std::max<int64_t>(1, x.cols() * static_cast<int64_t>(bytes(x.dtype)));
}

// Rows of which a slot has room for all.
int64_t most_rows(const Tensor& x) { return static_cast<int64_t>(kSlotBytes) / row_bytes(x); }

}  // namespace

Exchange DeviceGroup::Shared::exchange(int rank) const {
  Exchange exchange{
      .state = reinterpret_cast<ExchangeState*>(states[static_cast<size_t>(rank)].data()),
      .signal = reinterpret_cast<const ExchangeSignal*>(signal.data()),
      .rank = rank,
      .size = static_cast<int>(devices.size())};
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

DeviceRank::DeviceRank(std::shared_ptr<DeviceGroup::Shared> shared,
                       std::unique_ptr<comm::Communicator> hosts)
    : shared_(std::move(shared)), hosts_(std::move(hosts)), exchange_(shared_->exchange(rank())) {}

void DeviceRank::abort(const std::string& why) {
  shared_->end(why);
  hosts_->abort(why);
}

template <class F>
void DeviceRank::in_pieces(const Tensor& x, int64_t most, Ops& ops, F start) {
  shared_->throw_if_ended();
  cuda::CudaOps& own = cuda_ops(ops, shared_->devices[static_cast<size_t>(rank())]);
  const cudaStream_t stream = own.queue();
  const bool meets = !shared_->in_service && !is_recording(stream);
  const auto meet = [&] {
    if (!meets) return;
    cuda::check(cudaStreamSynchronize(stream), "waiting for an operation");
    hosts_->least(0);
  };
  SKIFF_CHECK(most > 0, "a row of {} bytes does not fit a slot", row_bytes(x));
  meet();
  for (int64_t row = 0; row < x.rows(); row += most)
    start(row, static_cast<int>(std::min(most, x.rows() - row)), stream);
  meet();
}

void DeviceRank::all_reduce(Tensor x, Ops& ops) {
  in_pieces(x, most_rows(x), ops, [&](int64_t row, int rows, cudaStream_t stream) {
    start_all_reduce(exchange_, matrix(x.row_range(row, rows)), rows, static_cast<int>(x.cols()),
                     stream);
  });
}

void DeviceRank::all_gather(Tensor out, Tensor x, Ops& ops) {
  SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
  SKIFF_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32, "only f32 is gathered");
  in_pieces(x, most_rows(x), ops, [&](int64_t row, int rows, cudaStream_t stream) {
    start_all_gather(exchange_, matrix(out.row_range(row, rows)), matrix(x.row_range(row, rows)),
                     rows, static_cast<int>(x.cols()), stream);
  });
}

void DeviceRank::reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                                 comm::ResidualUse use, Ops& ops) {
  SKIFF_CHECK_EQ(out.rows(), delta.rows());
  SKIFF_CHECK_EQ(residual.cols(), delta.cols());
  SKIFF_CHECK(out.dtype == delta.dtype && residual.dtype == DType::kF32);
  const bool owners = use == comm::ResidualUse::kSums && delta.rows() >= size() &&
                      delta.rows() * row_bytes(delta) >= shared_->owners_from;
  const int64_t most = owners ? most_rows_by_owners(size(), row_bytes(delta)) : most_rows(delta);
  in_pieces(delta, most, ops, [&](int64_t row, int rows, cudaStream_t stream) {
    const auto part = [&](const Tensor& t) { return matrix(t.row_range(row, rows)); };
    const auto start = owners && rows >= size() ? start_add_norm_by_owners : start_reduce_add_norm;
    start(exchange_,
          {.out = part(out),
           .residual = part(residual),
           .delta = part(delta),
           .weight = norm.weight.as<float>(),
           .eps = norm.eps,
           .rows = rows,
           .cols = static_cast<int>(delta.cols())},
          stream);
  });
}

}  // namespace skiff::devices
