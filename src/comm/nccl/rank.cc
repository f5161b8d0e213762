#include "comm/nccl/rank.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/devices/member.h"
#include "ops/cuda/check.h"

namespace skiff::nccl {
namespace {

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "asking whether a step is being recorded");
  return status != cudaStreamCaptureStatusNone;
}

bool is_contiguous(const Tensor& x) { return x.rows() <= 1 || x.row_stride == x.cols(); }

int64_t bytes_of(const Tensor& x) { return x.rows() * devices::row_bytes(x); }

// Calls f(row, rows) for pieces of at most `most` rows.
template <class F>
void in_pieces(int64_t rows, int64_t most, F f) {
  SKIFF_CHECK(most > 0, "a row is larger than what is sent at a time");
  for (int64_t row = 0; row < rows; row += most) f(row, std::min(most, rows - row));
}

devices::ReduceAddNorm arguments(const Tensor& out, const Tensor& residual, const Tensor& delta,
                                 const Norm& norm) {
  return {.out = devices::matrix(out),
          .residual = devices::matrix(residual),
          .delta = devices::matrix(delta),
          .weight = norm.weight.as<float>(),
          .eps = norm.eps,
          .rows = static_cast<int>(delta.rows()),
          .cols = static_cast<int>(delta.cols())};
}

}  // namespace

Rank::Rank(std::shared_ptr<Group::Shared> shared, Link& link, Buffer memory,
           std::unique_ptr<comm::Communicator> hosts)
    : shared_(std::move(shared)),
      link_(link),
      hosts_(std::move(hosts)),
      memory_(std::move(memory)) {}

// Who sees a result without meaning must be able to learn that the group has ended, so the hosts
// are told first.
void Rank::abort(const std::string& why) {
  hosts_->abort(why);
  shared_->end(why);
}

// Calls start(stream). See Group for when ranks meet.
template <class F>
void Rank::collectively(Ops& ops, F start) {
  shared_->throw_if_ended();
  shared_->may_wait = true;
  auto* own = dynamic_cast<cuda::CudaOps*>(&ops);
  SKIFF_CHECK(own != nullptr && ops.device() == memory_.device(),
              "{} is not the backend of device {}", ops.name(), memory_.device().index);
  const cudaStream_t stream = own->queue();
  const bool meets = shared_->settings.ranks > 1 && !shared_->in_service && !is_recording(stream);
  const auto meet = [&] {
    if (!meets) return;
    cuda::check(cudaStreamSynchronize(stream), "waiting for an operation");
    shared_->meeting.arrive();
  };
  meet();
  start(stream);
  meet();
}

// Returns the rows of x one behind the other: where they are, or in this rank's piece.
const void* Rank::contiguous(const Tensor& x, cudaStream_t stream) {
  if (is_contiguous(x)) return x.data;
  const auto row = static_cast<size_t>(devices::row_bytes(x));
  std::byte* to = memory_.data() + rank() * bytes_of(x);
  cuda::check(cudaMemcpy2DAsync(to, row, x.data, byte_size(x.dtype, x.row_stride), row,
                                static_cast<size_t>(x.rows()), cudaMemcpyDeviceToDevice, stream),
              "copying what is sent");
  return to;
}

void Rank::all_reduce(Tensor x, Ops& ops) {
  collectively(ops, [&](cudaStream_t stream) {
    in_pieces(x.rows(), kPieceBytes / devices::row_bytes(x), [&](int64_t row, int64_t rows) {
      const Tensor part = x.row_range(row, rows);
      const auto bytes = bytes_of(part);
      link_.all_gather(contiguous(part, stream), memory_.data(), static_cast<size_t>(bytes),
                       stream);
      start_all_reduce(gathered(bytes), devices::matrix(part), static_cast<int>(rows),
                       static_cast<int>(x.cols()), stream);
    });
  });
}

void Rank::all_gather(Tensor out, Tensor x, Ops& ops) {
  SKIFF_CHECK_EQ(out.cols(), x.cols() * size());
  SKIFF_CHECK(out.dtype == DType::kF32 && x.dtype == DType::kF32, "only f32 is gathered");
  collectively(ops, [&](cudaStream_t stream) {
    in_pieces(x.rows(), kPieceBytes / devices::row_bytes(x), [&](int64_t row, int64_t rows) {
      const auto bytes = rows * devices::row_bytes(x);
      std::byte* mine = memory_.data() + rank() * bytes;
      const int count = static_cast<int>(rows), cols = static_cast<int>(x.cols());
      start_packing(reinterpret_cast<float*>(mine), devices::matrix(x.row_range(row, rows)), count,
                    cols, stream);
      link_.all_gather(mine, memory_.data(), static_cast<size_t>(bytes), stream);
      start_spreading(devices::matrix(out.row_range(row, rows)),
                      reinterpret_cast<const float*>(memory_.data()), count, cols, size(), stream);
    });
  });
}

bool Rank::by_owners(const Tensor& delta, comm::ResidualUse use) const {
  return use == comm::ResidualUse::kSums &&
         bytes_of(delta) >= shared_->settings.owners_from.value_or(Group::owners_from(size()));
}

// Rows that cannot be dealt evenly are added up by all.
void Rank::reduce_add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm,
                           comm::ResidualUse use, Ops& ops) {
  SKIFF_CHECK_EQ(out.rows(), delta.rows());
  SKIFF_CHECK_EQ(residual.cols(), delta.cols());
  SKIFF_CHECK(out.dtype == delta.dtype && residual.dtype == DType::kF32);
  const int64_t most = kPieceBytes / devices::row_bytes(delta);
  const int64_t dealt = by_owners(delta, use) ? delta.rows() / size() * size() : 0;
  collectively(ops, [&](cudaStream_t stream) {
    in_pieces(dealt, most * size(), [&](int64_t row, int64_t rows) {
      add_by_owners(out.row_range(row, rows), residual.row_range(row, rows),
                    delta.row_range(row, rows), norm, stream);
    });
    in_pieces(delta.rows() - dealt, most, [&](int64_t row, int64_t rows) {
      gather_and_add(out.row_range(dealt + row, rows), residual.row_range(dealt + row, rows),
                     delta.row_range(dealt + row, rows), norm, stream);
    });
  });
}

void Rank::gather_and_add(const Tensor& out, const Tensor& residual, const Tensor& delta,
                          const Norm& norm, cudaStream_t stream) {
  const int64_t bytes = bytes_of(delta);
  link_.all_gather(contiguous(delta, stream), memory_.data(), static_cast<size_t>(bytes), stream);
  start_reduce_add_norm(gathered(bytes), arguments(out, residual, delta, norm), stream);
}

// Which rows a rank owns must follow from their number alone, or the residual's rows would not be
// where the next sum needs them: so nothing here depends on how tensors lie.
void Rank::add_by_owners(const Tensor& out, const Tensor& residual, const Tensor& delta,
                         const Norm& norm, cudaStream_t stream) {
  SKIFF_CHECK(is_contiguous(delta) && is_contiguous(out), "rows apart cannot be dealt to owners");
  const int64_t rows = delta.rows() / size(), first = rank() * rows;
  const int64_t bytes = rows * devices::row_bytes(delta);
  link_.all_to_all(static_cast<const std::byte*>(delta.data), memory_.data(),
                   static_cast<size_t>(bytes), stream);
  const auto own = [&](const Tensor& t) { return t.row_range(first, rows); };
  start_reduce_add_norm(gathered(bytes), arguments(own(out), own(residual), own(delta), norm),
                        stream);
  link_.all_gather(own(out).data, out.data, static_cast<size_t>(bytes), stream);
}

}  // namespace skiff::nccl
