#include "ops/cuda/linear/dense.h"

#include <algorithm>

#include "ops/cuda/linear/add_bias.h"
#include "ops/cuda/linear/float_weights.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/small.h"
#include "ops/cuda/linear/split_weights.h"
#include "ops/cuda/linear/tiled.h"
#include "ops/cuda/quant/unpack.h"

namespace skiff::cuda {
namespace {

// Where streaming beat cuBLASLt on an H200, in a sequence of GEMMs that overlap:
// docs/performance_cuda_products.md.
constexpr int64_t kFewRows = 32, kManyWeightBytes = int64_t{24} << 20;

// Returns whether a weight, whose products must be summed in one order for any number of rows, is
// multiplied in one chain of additions, as cuBLASLt can: where its tiles occupy all multiprocessors
// or the chain is short. Otherwise several multiprocessors share a tile where rows are few. The
// answer must follow from the weight alone.
bool is_chained(const Linear& w) {
  constexpr int64_t kManyFeatures = 5120, kShortChain = 3072;
  return w.weight.rows() >= kManyFeatures || w.weight.cols() <= kShortChain;
}

}  // namespace

size_t DenseProducts::scratch_bytes(int64_t max_rows, int64_t max_biased_out) {
  return StreamedProducts::workspace_bytes() + CublasLt::kWorkspaceBytes +
         static_cast<size_t>(max_rows * max_biased_out) * sizeof(float);
}

DenseProducts::DenseProducts(void* scratch, size_t bytes, const DenseOptions& options)
    : one_order_(options.one_order),
      unpacks_from_(options.unpacks_from),
      library_from_(options.library_from),
      library_scratch_(static_cast<std::byte*>(scratch) + StreamedProducts::workspace_bytes()),
      sums_(library_scratch_ + CublasLt::kWorkspaceBytes),
      sums_bytes_(bytes - std::min(bytes, scratch_bytes(0, 0))),
      streamed_(scratch, {sums_, sums_bytes_}, options.portable, options.one_order),
      resident_(options.portable),
      library_(options.one_order),
      channels_(streamed_.inputs(), library_scratch_,
                {.portable = options.portable,
                 .one_order = options.one_order,
                 .library_from = options.channels_from}) {
  const size_t before = scratch_bytes(0, 0);
  SKIFF_CHECK(bytes >= before, "scratch of {} bytes; at least {}", bytes, before);
}

bool DenseProducts::streams(const Tensor& x, const Linear& w, bool gated) const {
  if (w.format.quantized()) return streamed_.takes(x, w, gated) && x.rows() <= rows_at_once(x, w);
  const int64_t weight_bytes = w.weight.elements() * static_cast<int64_t>(bytes(w.weight.dtype));
  const bool faster = x.rows() <= kFewRows && weight_bytes >= kManyWeightBytes;
  return faster && streamed_.takes(x, w, gated);
}

// Returns whether one of our kernels takes the GEMM before cuBLASLt is asked.
bool DenseProducts::is_ours(const Tensor& x, const Linear& w) const {
  if (one_order_) return !is_chained(w);
  return small_product_takes(x, w) || streams(x, w, false) || resident_.takes(x, w);
}

bool DenseProducts::fits_before_bias(const Tensor& out) const {
  return static_cast<size_t>(out.elements()) * sizeof(float) <= sums_bytes_;
}

// Where cuBLASLt writes: f32 sums where a bias is still to be added, so that rounding comes last.
Tensor DenseProducts::before_bias(const Tensor& out, const Linear& w) const {
  if (!w.bias || out.dtype == DType::kF32) return out;
  SKIFF_CHECK(fits_before_bias(out), "{} bytes are too few for the sums of {} x {} outputs",
              sums_bytes_, out.rows(), out.cols());
  Tensor sums = out;
  sums.data = sums_;
  sums.dtype = DType::kF32;
  sums.row_stride = out.cols();
  return sums;
}

void DenseProducts::product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream, bool beside,
                            const std::optional<RoundedRows>& rounded) {
  SKIFF_CHECK(w.experts == 0, "a stack of {} experts is no dense weight", w.experts);
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), w.weight.rows());
  SKIFF_CHECK_EQ(x.cols(), w.weight.cols());
  if (out.rows() == 0) return;
  if (w.format.quantized()) return quantized_product(out, x, w, rounded, stream);
  if (one_order_) return product_in_one_order(out, x, w, stream);
  if (small_product_takes(x, w)) return small_product(out, x, w, stream);
  if (float_weights_take(out, x, w)) {
    if (!split_product(out, x, w, stream))
      float_weights_product(out, x, w, {.hopper = streamed_.runs(), .beside = beside}, stream);
    return;
  }
  if (streams(x, w, false)) return streamed_.product(out, x, w, stream);
  if (resident_.takes(x, w)) return resident_.product(out, x, w, stream);
  if (CublasLt::takes(out, x, w)) {
    const Tensor sums = before_bias(out, w);
    if (library_.product(sums, x, w, library_scratch_, stream)) {
      if (w.bias) add_bias(out, sums, w.bias, stream);
      return;
    }
  }
  if (streamed_.takes(x, w, false)) return streamed_.product(out, x, w, stream);
  tiled_product(out, x, w, stream);
}

// Many rows by float32 weights in the library's GEMM, whose tiles are wider than those of
// float_weights_product(). Returns false, with nothing started, where it does not pay or fit.
bool DenseProducts::split_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  constexpr int64_t kManyRows = 2048;
  const int64_t rows = out.rows(), features = out.cols();
  const size_t weight_bytes = byte_size(DType::kBF16, 3 * w.weight.elements());
  const size_t sums_at = (weight_bytes + 255) / 256 * 256;
  if (rows < kManyRows || !w.weight.contiguous() || !streamed_.runs() ||
      sums_at + byte_size(DType::kF32, 3 * rows * features) > sums_bytes_)
    return false;
  Tensor parts = w.weight, sums = out;
  parts.data = sums_;
  parts.dtype = DType::kBF16;
  parts.dim[0] = 3 * features;
  sums.data = sums_ + sums_at;
  sums.dim[1] = sums.row_stride = 3 * features;
  const Linear split = {.weight = parts};
  if (!CublasLt::takes(sums, x, split)) return false;
  split_weights(parts, w.weight, stream);
  if (!library_.product(sums, x, split, library_scratch_, stream)) return false;
  add_parts(out, sums, w.bias, stream);
  return true;
}

// How many rows fit the scratch as the weight meets them.
int64_t DenseProducts::rows_at_once(const Tensor& x, const Linear& w) const {
  if (!changes_rows(w)) return x.rows();
  const Met as = streamed_.takes(x, w, false) ? met_by(w) : Met::kFloats;
  return met_rows_that_fit(as, streamed_.inputs().bytes, x.cols());
}

// Returns whether the library multiplies so many rows by a block-scaled e4m3 weight. It takes a
// multiple of UnpackedProducts::kRowStep rows; from kManyRows on it is worth a call of ours for
// what remains.
bool DenseProducts::leaves_to_library(const Linear& w, int64_t rows) const {
  constexpr int64_t kManyRows = 256;
  if (one_order_ || w.bias || !streamed_.runs()) return false;
  if (is_float8_rows(w))
    return rows >= library_from_ && (rows % UnpackedProducts::kRowStep == 0 || rows >= kManyRows);
  return rows >= unpacks_from_ && unpacks(w);
}

MetRows DenseProducts::met_by_library(const Tensor& x, const Linear& w, cudaStream_t stream) const {
  static_assert(UnpackedProducts::kScratchBytes <= CublasLt::kWorkspaceBytes);
  return meet(streamed_.inputs(), Met::kFloat8, x, w, {}, stream, true);
}

void DenseProducts::quantized_product(Tensor out, Tensor x, const Linear& w,
                                      const std::optional<RoundedRows>& rounded,
                                      cudaStream_t stream) {
  if (channels_.takes(x, w)) return channels_.product(out, x, w, rounded, stream);
  const bool streams = streamed_.takes(x, w, false);
  const int64_t most = rows_at_once(x, w);
  for (int64_t r = 0, n = 0; r < out.rows(); r += n) {
    n = std::min(most, out.rows() - r);
    const bool library = streams && leaves_to_library(w, n) && UnpackedProducts::takes(out, x, w);
    if (library) n -= n % UnpackedProducts::kRowStep;
    const Tensor part = out.row_range(r, n), rows = x.row_range(r, n);
    if (library &&
        unpacked_.product(part, met_by_library(rows, w, stream), w, library_scratch_, stream))
      continue;
    if (streams) {
      streamed_.product(part, rows, w, stream);
    } else if (changes_rows(w)) {
      const MetRows met = meet(streamed_.inputs(), Met::kFloats, rows, w, {}, stream);
      tiled_product(part, met.x, w, stream);
    } else {
      tiled_product(part, rows, w, stream);
    }
  }
}

// The kernel follows from the shape of the weight, never from the number of rows.
void DenseProducts::product_in_one_order(Tensor out, Tensor x, const Linear& w,
                                         cudaStream_t stream) {
  if (float_weights_take(out, x, w))
    return float_weights_product(out, x, w, {.one_order = true}, stream);
  if (!streamed_.takes(x, w, false)) return tiled_product(out, x, w, stream);
  if (!is_chained(w)) return streamed_.product(out, x, w, stream);
  if (!CublasLt::takes(out, x, w)) return streamed_.product_in_one_chain(out, x, w, stream);
  const Tensor sums = before_bias(out, w);
  if (!library_.product(sums, x, w, library_scratch_, stream))
    return streamed_.product_in_one_chain(out, x, w, stream);
  if (w.bias) add_bias(out, sums, w.bias, stream);
}

Tensor DenseProducts::product_before_bias(Tensor out, Tensor x, const Linear& w,
                                          cudaStream_t stream) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), w.weight.rows());
  SKIFF_CHECK_EQ(x.cols(), w.weight.cols());
  if (one_order_ || w.format.quantized() || !w.bias || out.rows() == 0 ||
      out.dtype == DType::kF32 || !fits_before_bias(out) || is_ours(x, w) ||
      !CublasLt::takes(out, x, w))
    return {};
  const Tensor sums = before_bias(out, w);
  return library_.product(sums, x, w, library_scratch_, stream) ? sums : Tensor{};
}

bool DenseProducts::gated_product(Tensor out, Tensor x, const Linear& w, Act act,
                                  cudaStream_t stream, const std::optional<RoundedRows>& rounded) {
  if (channels_.takes(x, w)) return channels_.gated_product(out, x, w, act, rounded, stream);
  if (one_order_ || w.bias || out.rows() == 0 || !streams(x, w, true) ||
      leaves_to_library(w, x.rows()))
    return false;
  streamed_.gated_product(out, x, w, act, stream);
  return true;
}

bool DenseProducts::streams_quantized(const Tensor& x, const Linear& w, bool gated) const {
  return w.format.quantized() && !channels_.takes(x, w) && streams(x, w, gated) &&
         !leaves_to_library(w, x.rows()) && !(gated && (one_order_ || w.bias));
}

void DenseProducts::tune(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) {
  const int64_t library_rows = out.rows() - out.rows() % UnpackedProducts::kRowStep;
  if (is_float8_rows(w) && library_rows > 0 && leaves_to_library(w, out.rows()) &&
      streams(x, w, false) && UnpackedProducts::takes(out, x, w)) {
    const Tensor rows = x.row_range(0, library_rows);
    unpacked_.tune(out.row_range(0, library_rows), met_by_library(rows, w, stream), w,
                   library_scratch_, stream);
  }
  if (out.rows() > 0 && !w.format.quantized() && !is_ours(x, w) && CublasLt::takes(out, x, w)) {
    const Tensor sums = before_bias(out, w);
    if (library_.tune(sums, x, w, library_scratch_, stream)) {
      if (w.bias) add_bias(out, sums, w.bias, stream);
      return;
    }
  }
  product(out, x, w, stream);
}

}  // namespace skiff::cuda
