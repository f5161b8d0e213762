#include "ops/cuda/backend.h"

#include <cublasLt.h>

#include <map>

#include "base/load_error.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/model_fit.h"
#include "ops/cuda/tensor_copies.h"
#include "tensor/device_memory.h"

namespace skiff {

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
  const int devices = num_cuda_devices();
  if (options.device < 0 || options.device >= devices)
    fail_load("CUDA device {} was asked for; there are {} (is the driver installed and recent?)",
              options.device, devices);
  const cuda::DeviceFacts facts = cuda::facts_of(options.device);
  const std::string why = cuda::refusal(facts, cuda::built_architectures());
  if (!why.empty()) fail_load("{}", why);
  if (options.batch_invariant && (options.portable || !cuda::runs_hopper_kernels(facts)))
    fail_load(
        "batch invariance on CUDA device {} ({}, compute capability {}.{}): only devices of "
        "capability 9.0 have kernels for it; leave --batch-invariant out, or use --device cpu, "
        "whose "
        "results never depend on the batch",
        facts.index, facts.name, facts.major, facts.minor);
  CudaOptions fitting = options;
  fitting.gather =
      options.gather && !options.portable && !options.batch_invariant && cuda::may_gather(facts);
  return std::make_unique<cuda::CudaOps>(fitting);
}

namespace cuda {
namespace {

// Tiles of 64 positions: one context of 1K keeps 32 multiprocessors busy (8 heads).
constexpr int kInvariantPiece = 4;

// Where attention over copies, latent attention and the products of its heads work: in the GEMMs'
// scratch, none of which lives from one operation to the next but the sums between a projection and
// its store.
constexpr size_t kHeadScratch = kBiasScratch - HeadProducts::kScratchBytes;

LatentAttention::Limits latent_limits_of(const CudaOptions& options) {
  return {.max_seqs = options.max_seqs,
          .max_tokens = options.max_rows,
          .whole = options.batch_invariant};
}

static_assert(kHeadScratch >= kExpandScratch);

// Layers with latent attention, one for each number of heads.
std::map<int, Mla> latent_layers(const ModelSpec& spec) {
  std::map<int, Mla> layers;
  for (const Layer& layer : spec.layers)
    if (const auto* mla = std::get_if<Mla>(&layer.mixer)) layers.emplace(mla->heads, *mla);
  return layers;
}

Attention::Limits limits_of(const CudaOptions& options) {
  return {.max_seqs = options.max_seqs,
          .max_tokens = options.max_rows,
          .piece = options.batch_invariant ? kInvariantPiece : 0};
}

}  // namespace

CudaOps::CudaOps(const CudaOptions& options)
    : options_(options),
      device_{Device::kCuda, static_cast<int8_t>(options.device)},
      stream_(options.device),
      scratch_(device_, DenseProducts::scratch_bytes(0, 0) + kBiasScratch),
      products_(scratch_.data(), scratch_.size(),
                {.portable = options.portable, .one_order = options.batch_invariant}),
      side_(device_, stream_.get(), options.portable, options.batch_invariant),
      row_scratch_(device_, OneRow::kScratchBytes),
      one_row_(row_scratch_.data(), options.gather),
      plans_(device_, Attention::bytes(limits_of(options)).device),
      pinned_plans_(Buffer::pinned(Attention::bytes(limits_of(options)).pinned)),
      attention_(limits_of(options), plans_.data(), pinned_plans_.data(), stream_.get(),
                 options.portable,
                 {scratch_.data() + DenseProducts::scratch_bytes(0, 0), kBiasScratch}),
      latent_attention_(latent_limits_of(options), device_,
                        scratch_.data() + DenseProducts::scratch_bytes(0, 0), options.portable),
      head_products_(scratch_.data() + DenseProducts::scratch_bytes(0, 0) + kHeadScratch,
                     options.batch_invariant),
      expanded_attention_(scratch_.data() + DenseProducts::scratch_bytes(0, 0),
                          scratch_.data() + DenseProducts::scratch_bytes(0, 0) + kHeadScratch),
      sampling_memory_(device_, std::max<size_t>(1, Sampling::bytes(options.portable))),
      sampling_(sampling_memory_.data(), {.portable = options.portable,
                                          .shared = options.shared_memory,
                                          .one_way = options.batch_invariant}) {}

size_t CudaOps::scratch_bytes(const StepBounds& bounds) const {
  check_model(bounds.spec);
  return latent_layers(bounds.spec).size() *
         LatentAttention::plan_bytes(latent_limits_of(options_));
}

void CudaOps::reserve(const StepBounds& bounds) {
  for (const auto& [heads, spec] : latent_layers(bounds.spec))
    latent_attention_.reserve(heads, expands(spec), stream());
}

cudaStream_t CudaOps::stream() {
  last_product_.forget();
  ahead_.reset();
  deferred_.start(stream_.get());
  one_row_.start(stream_.get());
  return stream_.get();
}

uint64_t CudaOps::mark() {
  join();
  stream();
  return stream_.mark();
}

uint64_t CudaOps::stamp() {
  join();
  stream();
  return stream_.stamp();
}

CopiesBeside CudaOps::copy_beside(std::span<const Arrival> copies) {
  join();
  stream();
  const CopiesBeside out = copies_beside_.copy(copies);
  if (options_.synchronous) copies_beside_.wait(out.number);
  return out;
}

void CudaOps::after(uint64_t number) {
  stream();
  copies_beside_.after(number);
}

void CudaOps::bind_thread() { check(cudaSetDevice(options_.device), "choosing a device"); }

// The order of additions depends on the number of multiprocessors and on the mode, and cuBLASLt's
// algorithms on its version.
std::string CudaOps::arithmetic() const {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options_.device), "asking what the device is");
  return fmt::format("cuda {} capability {}.{} multiprocessors {} cublaslt {}{}{}", properties.name,
                     properties.major, properties.minor, properties.multiProcessorCount,
                     cublasLtGetVersion(), options_.portable ? " portable" : "",
                     options_.batch_invariant ? " batch-invariant" : "");
}

void CudaOps::done() {
  if (options_.synchronous) check(cudaStreamSynchronize(stream()), "waiting for an operation");
}

// A sequence with more rows may be prefilled, by as many blocks as there are such sequences: then
// the launches do not follow from the key.
bool CudaOps::records(const std::optional<ReplayKey>& key) const {
  return key && key->rows_per_seq <= cuda::kMaxShares && options_.graphs && !options_.synchronous;
}

void CudaOps::replay(const std::optional<ReplayKey>& key, const std::function<void()>& work) {
  if (!records(key)) return work();
  stream();
  stream_.replay(*key, [&] {
    work();
    join();
    stream();
  });
}

void CudaOps::run_step(const std::optional<ReplayKey>& key, const WholeStep& step,
                       const std::function<void()>& work) {
  plan_step(step.batch, step.arrivals);
  results_.clear();
  for (const Arrival& result : step.results)
    if (result.to) results_.push_back(small_copy(result.to, result.from));
  const StepEnds ends{.before = [&](Starts& starts) { bring(step.batch, starts); },
                      .behind = [&](Starts& starts) { fetch(results_, starts); }};
  const auto all = [&] {
    work();
    join();
    stream();
  };
  stream();
  if (records(key))
    stream_.replay(*key, all, ends);
  else
    stream_.run(all, ends);
  done();
}

void CudaOps::rehearse(const std::function<void()>& work) {
  rehearsing_ = true;
  work();
  rehearsing_ = false;
  wait(mark());
  products_.settle();
}

bool CudaOps::adopt_tuning(std::span<const std::byte> tuning) {
  const std::optional<TunedProducts> tuned = tuned_of(tuning);
  return tuned && products_.adopt(*tuned);
}

void CudaOps::begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) {
  plan_step(batch, arrivals);
  Starts starts(stream());
  bring(batch, starts);
  done();
}

void CudaOps::plan_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) {
  live_ = routed_ = batch.row_start.as<int32_t>() + batch.num_seqs;
  copies_.clear();
  for (const Arrival& arrival : arrivals)
    if (arrival.to) copies_.push_back(small_copy(arrival.to, arrival.from));
  attention_.plan_step(batch, copies_, stream());
  latent_attention_.plan_step(batch, copies_, stream());
  moved_.clear();
  if (batch.moved_back.slots.rows() == 0) return;
  attention_.add_moved(moved_);
  latent_attention_.add_moved(moved_);
}

// Starts what brings a step that was planned to the device.
void CudaOps::bring(const RaggedBatch& batch, Starts& starts) {
  deliver(copies_, starts);
  move_back(batch, moved_, starts);
}

}  // namespace cuda
}  // namespace skiff
