#include "ops/cuda/attention/decode_kernel.cuh"

namespace skiff::cuda {

using namespace decode;

size_t decode_part_bytes(int head_dim) {
  return head_dim == 64    ? sizeof(Part<Shape<64, KvElement::kBf16>>)
         : head_dim == 128 ? sizeof(Part<Shape<128, KvElement::kBf16>>)
                           : sizeof(Part<Shape<256, KvElement::kBf16>>);
}

int decode_blocks_per_processor(int head_dim) { return head_dim == 256 ? 1 : 2; }

void start_decode(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
                  cudaStream_t stream) {
  if (is_quantized(d.args.cache.element)) return start_quantized_decode(d, k, v, stream);
  if (d.piece > 0) return start_invariant_decode(d, k, v, stream);
  start_for<KvElement::kBf16>(d, k, v, stream);
}

}  // namespace skiff::cuda
