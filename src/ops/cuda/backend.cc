#include "ops/cuda/backend.h"

#include <cublasLt.h>

#include <map>

#include "base/load_error.h"
#include "ops/cuda/attention/store.h"
#include "ops/cuda/check.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/linear/pack_tiles.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/mla/latent_forms.h"
#include "ops/cuda/mla/store.h"
#include "ops/cuda/model_fit.h"
#include "ops/cuda/moe/experts.h"
#include "ops/cuda/moe/route.h"
#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/quant/prepare.h"
#include "ops/cuda/quant/quantize.h"
#include "ops/cuda/quant/round_ahead.h"
#include "ops/cuda/rows/rows.h"
#include "ops/layer_arena.h"
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

// Scratch for f32 sums before a bias is added; GEMMs with more rows are done in pieces.
constexpr size_t kBiasScratch = size_t{256} << 20;

int64_t bias_rows(const Tensor& out) {
  return std::max<int64_t>(1, static_cast<int64_t>(kBiasScratch / sizeof(float)) / out.cols());
}

// Tiles of 64 positions: one context of 1K keeps 32 multiprocessors busy (8 heads).
constexpr int kInvariantPiece = 4;

// Where latent attention and the products of its heads work: in the GEMMs' scratch, none of which
// lives from one operation to the next but the sums between a projection and its store.
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

size_t row_bytes(const Tensor& t) { return static_cast<size_t>(t.cols()) * bytes(t.dtype); }

size_t pitch(const Tensor& t) { return static_cast<size_t>(t.row_stride) * bytes(t.dtype); }

SmallCopy small_copy(const Tensor& to, const Tensor& from) {
  SKIFF_CHECK(to.dtype == from.dtype && bytes(to.dtype) % 4 == 0);
  SKIFF_CHECK_EQ(to.rows(), from.rows());
  SKIFF_CHECK_EQ(to.cols(), from.cols());
  return {.to = to.data,
          .from = from.data,
          .rows = from.rows(),
          .row_bytes = static_cast<int64_t>(row_bytes(from)),
          .to_pitch = static_cast<int64_t>(pitch(to)),
          .from_pitch = static_cast<int64_t>(pitch(from))};
}

// Returns whether a kernel may write x to `out` directly. Sampled tokens go to the host that way;
// larger tensors are copied.
bool is_small_and_pinned(const Tensor& out, const Tensor& x) {
  constexpr size_t kSmall = 16384;
  if (out.device != Device{} || x.device == Device{} || bytes(x.dtype) % 4 != 0 ||
      row_bytes(x) * static_cast<size_t>(x.rows()) > kSmall)
    return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, out.data), "asking what memory is");
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace

CudaOps::CudaOps(const CudaOptions& options)
    : options_(options),
      device_{Device::kCuda, static_cast<int8_t>(options.device)},
      stream_(options.device),
      scratch_(device_, DenseProducts::scratch_bytes(0, 0) + kBiasScratch),
      products_(scratch_.data(), scratch_.size(),
                {.portable = options.portable, .one_order = options.batch_invariant}),
      row_scratch_(device_, OneRow::kScratchBytes),
      one_row_(row_scratch_.data(), options.gather),
      plans_(device_, Attention::bytes(limits_of(options)).device),
      pinned_plans_(Buffer::pinned(Attention::bytes(limits_of(options)).pinned)),
      attention_(limits_of(options), plans_.data(), pinned_plans_.data(), stream_.get(),
                 options.portable),
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

template <class F>
bool CudaOps::gathered(F join) {
  if (options_.gather) deferred_.start(stream_.get());
  bool joined = options_.gather && join();
  if (!joined && !one_row_.empty()) {
    stream();
    joined = join();
  }
  if (joined) done();
  return joined;
}

uint64_t CudaOps::mark() {
  stream();
  return stream_.mark();
}

uint64_t CudaOps::stamp() {
  stream();
  return stream_.stamp();
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

// Copies without conversion.
void CudaOps::move(Tensor out, Tensor x) {
  if (out.elements() == 0) return;
  if (is_small_and_pinned(out, x)) return fetch(small_copy(out, x), stream());
  if (out.contiguous() && x.contiguous()) {
    check(cudaMemcpyAsync(out.data, x.data, row_bytes(x) * static_cast<size_t>(x.rows()),
                          cudaMemcpyDefault, stream()),
          "copying");
    return;
  }
  check(cudaMemcpy2DAsync(out.data, pitch(out), x.data, pitch(x), row_bytes(x),
                          static_cast<size_t>(x.rows()), cudaMemcpyDefault, stream()),
        "copying rows");
}

// Conversions run on the device, so host tensors go through a temporary; only start-up needs that.
void CudaOps::copy(Tensor out, Tensor x) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  if (out.dtype == x.dtype) {
    move(out, x);
    return done();
  }
  const auto on_device = [&](const Tensor& t, Buffer& memory) {
    if (t.device == device_) return t;
    memory = Buffer(device_, row_bytes(t) * static_cast<size_t>(t.rows()));
    return memory.view(t.dtype, {t.rows(), t.cols()});
  };
  Buffer x_memory, out_memory;
  const Tensor from = on_device(x, x_memory), to = on_device(out, out_memory);
  if (from.data != x.data) move(from, x);
  copy_rows(to, from, {}, stream());
  if (to.data != out.data) move(out, to);
  if (x_memory.size() + out_memory.size() > 0) wait(mark());
}

bool CudaOps::multiplies(const WeightFormat& format) const {
  return format == WeightFormat{DType::kF32} || format == WeightFormat{DType::kBF16} ||
         atom_format(format).has_value();
}

size_t CudaOps::arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows, DType act) const {
  return layer_arena_bytes(ffn, rows, act, [&](const Moe& moe) {
    return experts_bytes(act, rows * moe.sharers, moe.router, hidden, moe.width);
  });
}

// The bias begins at a multiple of 256 bytes.
size_t CudaOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  if (keep.quantized()) return prepared_quantized_bytes(shape, keep, products_.streamed().runs());
  const int64_t elements = std::max<int64_t>(1, shape.experts) * shape.out * shape.in;
  const size_t weight = (static_cast<size_t>(elements) * bytes(keep.dtype) + 255) / 256 * 256;
  return weight + (shape.bias ? static_cast<size_t>(shape.out) * sizeof(float) : 0);
}

// Experts are packed for the streamed GEMM. Dense weights stay plain: cuBLASLt reads them, too.
bool CudaOps::packs(const Linear& plain, const WeightFormat& keep) const {
  return options_.pack_experts && products_.streamed().runs() && plain.experts > 0 &&
         keep == WeightFormat{DType::kBF16} && plain.weight.contiguous() &&
         fits_tiles(features(plain), inputs(plain));
}

// Converts and packs one expert after the other, through a buffer for one of them.
void CudaOps::copy_packed(std::byte* to, const Linear& plain) {
  const int64_t rows = features(plain), in = inputs(plain);
  const Buffer memory(device_, static_cast<size_t>(rows * in) * 2);
  const Tensor one = memory.view(DType::kBF16, {rows, in});
  const Tensor all = plain.weight.reshaped({plain.experts * rows, in});
  for (int64_t e = 0; e < plain.experts; ++e) {
    copy(one, all.row_range(e * rows, rows));
    pack_tiles(to + e * rows * in * 2, one, stream());
  }
  wait(mark());
}

void CudaOps::quantize(const Linear& q, Tensor plain, QuantRule rule) {
  cuda::quantize(q, plain, rule, stream());
  done();
}

Linear CudaOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  if (keep.quantized()) {
    Linear w =
        prepare_quantized(plain, keep, device_, owner, stream(), products_.streamed().runs());
    has_channels_ |= is_float8_channels(w);
    return w;
  }
  SKIFF_CHECK(!plain.format.quantized() && multiplies(keep), "from {} to {}",
              describe(plain.format), describe(keep));
  const size_t weight = (byte_size(keep.dtype, plain.weight.elements()) + 255) / 256 * 256;
  const size_t bias = plain.bias ? static_cast<size_t>(plain.bias.elements()) * 4 : 0;
  *owner = Buffer(device_, weight + bias);
  Linear out{.weight = plain.weight, .format = keep, .experts = plain.experts};
  out.weight.data = owner->data();
  out.weight.dtype = keep.dtype;
  out.weight.device = device_;
  out.weight.row_stride = plain.weight.cols();
  if (packs(plain, keep)) {
    out.packing = Packing::kTiles;
    copy_packed(owner->data(), plain);
  } else {
    copy(out.weight, plain.weight);
  }
  if (plain.bias) {
    out.bias = owner->view(DType::kF32, {plain.bias.elements()}, weight);
    copy(out.bias, plain.bias.reshaped({plain.bias.elements()}));
  }
  wait(mark());
  return out;
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

const float* CudaOps::speeds_of(const Rope& rope) {
  for (const auto& [known, buffer] : speeds_)
    if (known == rope) return buffer.view(DType::kF32, {rope.dim / 2}).as<float>();
  std::vector<float> speeds = rope_frequencies(rope);
  const auto n = std::ssize(speeds);
  Buffer buffer(device_, std::max<size_t>(1, speeds.size()) * sizeof(float));
  move(buffer.view(DType::kF32, {n}), host_tensor(speeds.data(), DType::kF32, {n}));
  speeds_.emplace_back(rope, std::move(buffer));
  return speeds_of(rope);
}

void CudaOps::load_tokens(Tensor tokens, Tensor last) {
  cuda::load_tokens(tokens, last, stream());
  done();
}

void CudaOps::store_tokens(Tensor last, Tensor slots, Tensor tokens) {
  cuda::store_tokens(last, slots, tokens, stream());
  done();
}

void CudaOps::embed(Tensor out, Tensor table, Tensor ids) { gather_rows(out, table, ids); }

void CudaOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  SKIFF_CHECK_EQ(out.rows(), rows.rows());
  copy_rows(out, x, rows, stream());
  done();
}

void CudaOps::add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) {
  if (deferred_.add_norm(out, residual, delta, norm, stream_.get())) return done();
  if (gathered([&] { return one_row_.add_norm(out, residual, delta, norm); })) return;
  if (rounds_ahead(out) && rounds_norm(out, residual, delta, norm)) {
    const cudaStream_t on = stream();
    ahead_ = {out, add_norm_rounding(out, residual, delta, norm, products_.inputs(), on)};
  } else {
    cuda::add_norm(out, residual, delta, norm, stream());
  }
  done();
}

// Returns whether rows of `out` had better be rounded where they are made: a product of few rows
// rounds them itself.
bool CudaOps::rounds_ahead(const Tensor& out) const {
  return has_channels_ && out.rows() > kMostDirectRows && rounds_rows(out) &&
         rounded_rows_bytes(out.rows(), out.cols()) <= products_.inputs().bytes;
}

std::optional<RoundedRows> CudaOps::ahead_of(const Tensor& x) const {
  const auto is_it = [&](const Tensor& known) {
    return known.data == x.data && known.dtype == x.dtype && known.rows() == x.rows() &&
           known.cols() == x.cols() && known.row_stride == x.row_stride;
  };
  return ahead_ && is_it(ahead_->x) ? std::optional(ahead_->rounded) : std::nullopt;
}

void CudaOps::linear(Tensor out, Tensor x, const Linear& w) {
  if (gathered([&] { return one_row_.linear(out, x, w); })) return;
  const int64_t most = w.bias ? bias_rows(out) : out.rows();
  for (int64_t r = 0; r < out.rows(); r += most) {
    const int64_t n = std::min(most, out.rows() - r);
    const Tensor part = out.row_range(r, n), rows = x.row_range(r, n);
    if (rehearsing_) {
      products_.tune(part, rows, w, stream());
    } else {
      product(part, rows, w);
    }
  }
  done();
}

void CudaOps::product(Tensor out, Tensor x, const Linear& w) {
  const bool beside = last_product_.allows({x}, {out});
  const std::optional<RoundedRows> rounded = ahead_of(x);
  products_.product(out, x, w, stream(), beside, rounded);
  if (products_.triggers_late(x, w)) last_product_.remember(out, x);
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

void CudaOps::gated_act(Tensor out, Tensor gate_up, Act act) {
  if (rounds_ahead(out) && rounds_gated(out, gate_up)) {
    const cudaStream_t on = stream();
    ahead_ = {out, gated_act_rounding(out, gate_up, act, products_.inputs(), on)};
  } else {
    cuda::gated_act(out, gate_up, act, stream());
  }
  done();
}

void CudaOps::gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) {
  if (gathered([&] { return one_row_.gated_linear(out, x, w, act); })) return;
  const std::optional<Ahead> ahead = ahead_;
  const std::optional<RoundedRows> rounded = ahead_of(x);
  if (products_.gated_product(out, x, w, act, stream(), rounded)) {
    if (products_.triggers_late(x, w)) last_product_.remember(out, x);
    return done();
  }
  ahead_ = ahead;  // nothing was started
  const size_t mark = arena.mark();
  const Tensor gate_up = arena.take(out.dtype, {x.rows(), 2 * out.cols()});
  linear(gate_up, x, w);
  gated_act(out, gate_up, act);
  arena.rewind(mark);
}

Routing CudaOps::route(Tensor logits, Tensor bias, const Router& router, Arena& arena) {
  const Routing r = take_routing(arena, logits.rows(), router);
  const bool beside = last_product_.allows({logits}, {r.expert, r.weight, r.order, r.expert_start});
  cuda::route(r, logits, bias, router, routed_, stream(), beside);
  done();
  return r;
}

void CudaOps::experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                      const Linear& down, Act act, Arena& arena) {
  const Combination last =
      cuda::experts(out, x, routing, {gate_up, down, act}, products_.streamed(), arena, stream());
  deferred_.combine(last);
  done();
}

void CudaOps::add(Tensor out, Tensor x) {
  if (deferred_.add(out, x)) return done();
  cuda::add(out, x, stream());
  done();
}

void CudaOps::relu(Tensor x) {
  cuda::relu(x, stream());
  done();
}

void CudaOps::store_edits(const EditPages& pages, const EditChanges& changes) {
  cuda::store_edits(pages, changes, stream());
  done();
}

void CudaOps::edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) {
  cuda::edit_logits(logits, pages, edits, stream());
  done();
}

void CudaOps::mask_logits(Tensor logits, Tensor rows, Tensor allowed) {
  cuda::mask_logits(logits, rows, allowed, stream());
  done();
}

void CudaOps::count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) {
  cuda::count_tokens(seen, slots, tokens, rows, stream());
  done();
}

void CudaOps::penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) {
  cuda::penalize(logits, seen, penalties, stream());
  done();
}

void CudaOps::sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) {
  sampling_.sample(out_ids, logits, batch, stream());
  done();
}

void CudaOps::draw_logprobs(Tensor logits, const SampleBatch& batch) {
  cuda::draw_logprobs(logits, batch, stream());
  done();
}

void CudaOps::check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) {
  cuda::check_drafts(ids, target, draft, checks, stream());
  done();
}

void CudaOps::settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) {
  cuda::settle_drafts(drafts, out, stream());
  done();
}

void CudaOps::take_back(Tensor values, Tensor slots, Tensor amounts) {
  cuda::take_back(values, slots, amounts, stream());
  done();
}

void CudaOps::logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                       Tensor top_logprobs, Tensor logits, Tensor chosen) {
  sampling_.logprobs(chosen_logprob, chosen_rank, top_ids, top_logprobs, logits, chosen, stream());
  done();
}

}  // namespace cuda
}  // namespace skiff
