// ops/cuda/linear/dense.h -- Ops::linear on the device: the fastest of our kernels and cuBLASLt.
#pragma once
#include "ops/cuda/linear/cublaslt.h"
#include "ops/cuda/linear/resident.h"
#include "ops/cuda/linear/stream.h"
#include "ops/cuda/quant/channel_products.h"
#include "ops/cuda/quant/unpacked.h"
#include "weights/linear.h"

namespace skiff::cuda {

struct DenseOptions {
  bool portable = false;  // without streamed()
  // No result depends on the number of rows, bit for bit: of cuBLASLt only algorithms are used that
  // add in the same order as StreamedProducts::product_in_one_chain().
  bool one_order = false;
  // The rows from which cuBLASLt multiplies block-scaled e4m3 weights: packed ones, which it costs
  // time to unpack, and those that lie row by row. Without one_order.
  int64_t unpacks_from = 512, library_from = 96;
  // The same for e4m3 weights with a scale for each output.
  int64_t channels_from = ChannelOptions{}.library_from;
};

// out[rows, out] = x[rows, in] * w^T + bias, rounded once. x and w both f32 or both bf16, or x bf16
// and w f32 (a router's), w plain; or w quantized, in the packing of quant/prepare.h; out f32 or
// the dtype of x. Rows of x and out may be strided. Allocates nothing and waits for nothing outside
// tune() and settle(), so steps can be captured. Driven by one thread.
class DenseProducts {
 public:
  // Bytes of scratch that the constructor needs for GEMMs of up to max_rows rows by weights with a
  // bias and up to max_biased_out outputs.
  static size_t scratch_bytes(int64_t max_rows, int64_t max_biased_out);
  // `scratch` must outlive this and be used in one stream only.
  DenseProducts(void* scratch, size_t bytes, const DenseOptions& options = {});

  // `beside`: may begin while the product before runs (ops/cuda/beside.h). `rounded`: x as
  // quant/round_ahead.h left it on inputs() right before; for weights of quant/float8_channels.h.
  void product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream, bool beside = false,
               const std::optional<RoundedRows>& rounded = {});
  // product() without its bias, where adding it would be a kernel of its own and out is not f32:
  // returns f32 sums [rows, out], valid until the next GEMM. Otherwise starts nothing and returns
  // an empty tensor.
  Tensor product_before_bias(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);
  // out = act(gate) * up, (gate, up) = x * w^T, w [2 * width, in] with the gate first. Returns
  // false, with nothing started, where GEMM and gate are faster apart: many rows, odd shapes. With
  // one_order that is always so, because tiles that are cut and tiles that are not write other
  // zeros.
  bool gated_product(Tensor out, Tensor x, const Linear& w, Act act, cudaStream_t stream,
                     const std::optional<RoundedRows>& rounded = {});
  // Returns whether product(), or gated_product(), does what streamed() would, with a quantized
  // weight: in another stream, another StreamedProducts gives the same bits.
  bool streams_quantized(const Tensor& x, const Linear& w, bool gated) const;
  // For start-up: does what product() does, and measures cuBLASLt's algorithms (CublasLt::tune);
  // after settle() the fastest are used.
  void tune(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);
  void settle() { library_.settle(); }
  TunedProducts tuned() const { return library_.tuned(); }
  bool adopt(const TunedProducts& tuned) { return library_.adopt(tuned); }
  const StreamedProducts& streamed() const { return streamed_; }
  const InputScratch& inputs() const { return streamed_.inputs(); }
  // StreamedProducts::triggers_late() of the kernel that product() or gated_product() starts.
  bool triggers_late(const Tensor& x, const Linear& w) const {
    return streamed_.triggers_late(x, w) || channels_.triggers_late(x, w);
  }

 private:
  bool is_ours(const Tensor& x, const Linear& w) const;
  bool streams(const Tensor& x, const Linear& w, bool gated) const;
  int64_t rows_at_once(const Tensor& x, const Linear& w) const;
  bool leaves_to_library(const Linear& w, int64_t rows) const;
  MetRows met_by_library(const Tensor& x, const Linear& w, cudaStream_t stream) const;
  void quantized_product(Tensor out, Tensor x, const Linear& w,
                         const std::optional<RoundedRows>& rounded, cudaStream_t stream);
  bool split_product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);
  void product_in_one_order(Tensor out, Tensor x, const Linear& w, cudaStream_t stream);
  bool fits_before_bias(const Tensor& out) const;
  Tensor before_bias(const Tensor& out, const Linear& w) const;

  bool one_order_;
  int64_t unpacks_from_, library_from_;
  std::byte *library_scratch_, *sums_;
  size_t sums_bytes_;
  StreamedProducts streamed_;
  ResidentProducts resident_;
  CublasLt library_;
  UnpackedProducts unpacked_;
  ChannelProducts channels_;
};

}  // namespace skiff::cuda
