// ops/cuda/backend_mixers.cc -- CudaOps: attention and what stores its keys and values.
#include "ops/cuda/backend.h"

#include "ops/cuda/attention/store.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/mla/latent_forms.h"
#include "ops/cuda/mla/store.h"
#include "ops/cuda/tensor_copies.h"

namespace skiff::cuda {

const float* CudaOps::speeds_of(const Rope& rope) {
  for (const auto& [known, buffer] : speeds_)
    if (known == rope) return buffer.view(DType::kF32, {rope.dim / 2}).as<float>();
  std::vector<float> speeds = rope_frequencies(rope);
  const auto n = std::ssize(speeds);
  Buffer buffer(device_, std::max<size_t>(1, speeds.size()) * sizeof(float));
  copy_plain(buffer.view(DType::kF32, {n}), host_tensor(speeds.data(), DType::kF32, {n}), stream());
  speeds_.emplace_back(rope, std::move(buffer));
  return speeds_of(rope);
}

void CudaOps::gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                        const RaggedBatch& batch, const KvLayer& kv) {
  cuda::gqa_store(qkv, {}, q, k, spec, batch, kv, speeds_of(spec.rope), stream());
  done();
}

void CudaOps::gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                          const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) {
  Biased biased;
  if (!gathered([&] { return one_row_.linear(qkv, x, w); })) {
    if (!rehearsing_ && !w.format.quantized())
      biased.sums = products_.product_before_bias(qkv, x, w, stream());
    if (biased.sums)
      biased.bias = w.bias;
    else
      linear(qkv, x, w);
  }
  cuda::gqa_store(qkv, biased, q, k, spec, batch, kv, speeds_of(spec.rope), stream());
  done();
}

void CudaOps::gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                         const KvLayer& kv) {
  attention_.attend(out, q, spec, batch, kv, stream());
  done();
}

void CudaOps::heads_linear(Tensor out, Tensor x, const Linear& w) {
  head_products_.product(out, x, w, stream());
  done();
}

void CudaOps::mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec,
                        const RaggedBatch& batch, const KvLayer& cache) {
  cuda::mla_store(q, kv, norm, spec, batch, cache, speeds_of(spec.rope), stream());
  done();
}

void CudaOps::mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                         const RaggedBatch& batch, const KvLayer& cache) {
  latent_attention_.attend(out, q_latent, q_rope, spec, batch, cache, stream());
  done();
}

// One form alone gives bits that do not depend on how a prompt was cut.
bool CudaOps::expands(const Mla& spec) const {
  return !options_.batch_invariant && !options_.portable && current_runs_hopper_kernels() &&
         ExpandedAttention::suits(spec);
}

void CudaOps::latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                            const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                            Arena& arena) {
  const cuda::LatentStep step = {values, q, absorb, value, spec, batch, cache};
  if (!expands(spec) || !expanded_attention_.takes(step))
    return Ops::latent_attend(values, q, absorb, value, spec, batch, cache, arena);
  cuda::latent_attend(step, {latent_attention_, head_products_, expanded_attention_}, arena,
                      stream());
  done();
}

}  // namespace skiff::cuda
