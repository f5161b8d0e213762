#include "ops/cuda/attention/decode_kernel.cuh"

namespace skiff::cuda {

void start_quantized_decode(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
                            cudaStream_t stream) {
  switch (d.args.cache.element) {
    case KvElement::kI8:
      return decode::start_for<KvElement::kI8>(d, k, v, stream);
    case KvElement::kE4M3:
      return decode::start_for<KvElement::kE4M3>(d, k, v, stream);
    default:
      return decode::start_for<KvElement::kU4>(d, k, v, stream);
  }
}

}  // namespace skiff::cuda
