// ops/ops.h -- all operations of a decoder and a sampler. Each backend implements all of them; only
// hints (soon(), begin_aside()), what is measured (tuning()) and another form of what other
// operations compute (latent_attend()) are optional. One suite (ops/suite/suite.h) judges every
// backend.
//
// Conventions. Outputs come first. Activations ("act") are f32 or bf16, the same within a step;
// arithmetic inside an op is f32 or wider, rounded once on the way out. Row r of every output
// depends only on row r of the inputs (and, in attention, on its sequence's cache); where
// batch_invariant() says so, bit for bit: not on how many rows there are, on the number of threads,
// or on how a prompt was cut into steps. The same step twice gives the same bits anywhere. Rows may
// be 0. An Ops is driven by one thread at a time.
//
// Order. Operations are computed in the order of the calls, perhaps after a call has returned:
// mark() and wait() show when. Tensors lie on device(), unless said otherwise, and must live until
// then.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "ops/batch.h"
#include "ops/replay_key.h"
#include "ops/step_bounds.h"
#include "tensor/memory.h"
#include "weights/linear.h"
#include "weights/quant_rule.h"
#include "weights/weight_shape.h"

namespace skiff {

// The routing of a mixture of experts; T tokens, K = Router::per_token() experts each, of E =
// Router::total() whose weights are here.
struct Routing {
  // [T, K] i32, places in the stacks of weights; by falling score, ties to the lower expert, then
  // those always on. -1: the expert is not here, but on another rank.
  Tensor expert;
  Tensor weight;  // [T, K] f32
  // [T*K] i32; copies t*K + k sorted by expert, then by t*K + k. Those of experts that are not here
  // are left out, and behind the others elements have no meaning.
  Tensor order;
  Tensor expert_start;  // [E+1] i32; copies of expert e are order[expert_start[e] ..)
  int always = 0;       // the last experts, which every token uses: its last copies, in order
  int experts = 0;      // those that tokens choose from, on other ranks too
};

// What a step, or a pass of a drafter, has besides its operations (Ops::run_step).
struct WholeStep {
  const RaggedBatch& batch;  // this and the next: what begin_step() gets
  std::span<const Arrival> arrivals;
  std::span<const Arrival> results;  // from where the work leaves them
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string_view name() const = 0;
  virtual Device device() const = 0;
  virtual bool batch_invariant() const = 0;
  // Names everything about this backend and its machine that the bits of a result depend on: the
  // instruction set, or the device's type, compute capability and libraries. Results that were
  // computed under another name must not be mixed with this one's.
  virtual std::string arithmetic() const = 0;
  // Makes the calling thread the one that drives this Ops; called at its start and whenever the
  // driving thread changes. Thread-bound state of the driver, such as CUDA's current device, is set
  // here.
  virtual void bind_thread() = 0;

  // Host memory that the backend itself needs for steps within `bounds`, in bytes. It is part of
  // the memory plan; reserve() allocates it, and such steps allocate no more of it. Throws
  // LoadError where memory cannot be had.
  virtual size_t scratch_bytes(const StepBounds& bounds) const = 0;
  virtual void reserve(const StepBounds& bounds) = 0;

  // Bytes of the Buffer that prepare() makes for a weight of that shape, kept in that format.
  virtual size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const = 0;
  // Returns the most bytes of the arena that gated_linear(), or route() and then experts() and
  // gated_linear(), hold at a time, for the layer `ffn` and at most `rows` rows of x [rows, hidden]
  // in `act`; route() and experts() get the rows of all sharers (Moe::sharers), as many of each.
  virtual size_t arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows,
                             DType act) const = 0;

  // out = x, element by element; floats may change dtype on the way. Both tensors may lie on the
  // host or on the device. Host memory that is not page-locked may be reused once copy() has
  // returned; page-locked memory (Buffer::pinned) is in use until a wait() for a later mark.
  virtual void copy(Tensor out, Tensor x) = 0;
  // mark() names all operations so far, and wait() sleeps until these are complete. Marks may be
  // waited for in any order, more than once.
  virtual uint64_t mark() = 0;
  virtual void wait(uint64_t mark) = 0;
  // A stamp notes the time at which all operations so far are complete. seconds_between() needs two
  // stamps, and a wait() for a mark made after both. The last 16 stamps are kept.
  virtual uint64_t stamp() = 0;
  virtual double seconds_between(uint64_t from, uint64_t to) = 0;
  // Copies each `from` to its `to`, of the same dtype and shape, beside the operations that follow:
  // once all so far are complete, and behind earlier copies like these. Until after() or
  // wait_copies() no operation may write to either or read `to`. Host memory is page-locked, and in
  // use until wait_copies(). The last 8 numbers are kept.
  virtual CopiesBeside copy_beside(std::span<const Arrival> copies) {
    const uint64_t begin = stamp();
    for (const Arrival& each : copies) copy(each.to, each.from);
    return {.begin = begin, .end = stamp()};
  }
  // Operations that follow begin once the copies of this number, and earlier ones, are complete.
  virtual void after(uint64_t /*number*/) {}
  // Sleeps until these are complete; so seconds_between() may have their stamps.
  virtual void wait_copies(uint64_t /*number*/) {}
  // Does work(), which only calls this Ops. Where starting operations is expensive, the backend may
  // record what work() starts and start the same again at the next call with that key, without
  // calling work(): with equal keys work() must start the same operations on the same addresses.
  // Without a key, or where the backend records no step of that many rows per sequence, work() is
  // called each time.
  virtual void replay(const std::optional<ReplayKey>& key, const std::function<void()>& work) = 0;

  // begin_step(), replay() and then the copies of results, as one. What is recorded contains all
  // three: at a replay, arrays arrive from other places and with other sizes, and results go to
  // other places, while work() finds and leaves them at the addresses of the recording. `results`
  // go to page-locked memory; dtypes are 4 or 8 bytes wide.
  virtual void run_step(const std::optional<ReplayKey>& key, const WholeStep& step,
                        const std::function<void()>& work) {
    begin_step(step.batch, step.arrivals);
    replay(key, work);
    for (const Arrival& result : step.results)
      if (result.to) copy(result.to, result.from);
  }

  // For start-up. Runs work() and measures how its operations are computed fastest with tensors of
  // those shapes; to be called several times for each kind of step.
  virtual void rehearse(const std::function<void()>& work) = 0;

  // The measurements of rehearse(), for adopt_tuning() of another Ops. Algorithms that two
  // processes choose by measuring may differ, and their results in the last bits; ranks that
  // compute the same product must agree, so one of them measures and the others adopt. Empty:
  // nothing was measured.
  virtual std::vector<std::byte> tuning() const { return {}; }
  // Called before rehearse(), which then measures nothing that `tuning` contains. Returns false,
  // and adopts nothing, if `tuning` comes from another build, library or kind of device.
  virtual bool adopt_tuning(std::span<const std::byte> tuning) { return tuning.empty(); }

  // Returns whether a weight can be kept in `format` for linear(), experts() and the other
  // operations that multiply by weights. Plain f32 and bf16 always can.
  virtual bool multiplies(const WeightFormat& format) const = 0;
  // For load time. Fills the elements and scales of `q`, [out, in] and kPlain, with the values of
  // `plain`, f32, f16 or bf16 [out, in], rounded by `rule`, which must fit q.format. Rows that do
  // not share a scale may be quantized in separate calls. Divisions are true ones, so every backend
  // gives the same bits. What is not finite gives elements without meaning: callers look for it
  // first.
  virtual void quantize(const Linear& q, Tensor plain, QuantRule rule) = 0;
  // For load time. Returns the weight in the form that this machine multiplies fastest: in the
  // format `keep`, for which multiplies() is true, and in a packing of the backend's own. `plain`
  // is kPlain, [out, in] or [experts, out, in], and may be freed afterwards: f32, f16 or bf16
  // without scales, and then `keep` has the dtype of the activations that will be multiplied by the
  // weight, or f32 where a weight of linear() must not be rounded, as a router's; or quantized, in
  // the format `keep`. The result's bytes, its scales, bias and order included, live in *owner.
  virtual Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) = 0;

  // Called before a step's operations, outside of replay(): copies the arrays that the host made
  // for it, moves rows back (RaggedBatch::moved_back) and plans what all its layers share. `batch`
  // and `arrivals` must live until the step is done.
  virtual void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) = 0;

  // tokens[i] = last[-1 - tokens[i]] where tokens[i] < 0; and last[slots[i]] = tokens[i], each slot
  // at most once, where slots[i] >= 0. All i32. So sampled tokens reach the next step without going
  // through the host.
  virtual void load_tokens(Tensor tokens, Tensor last) = 0;
  virtual void store_tokens(Tensor last, Tensor slots, Tensor tokens) = 0;

  // out[r] = table[ids[r]]. table [vocab, hidden] f32 or bf16; out f32 or act.
  virtual void embed(Tensor out, Tensor table, Tensor ids) = 0;

  // residual += delta (skipped when delta is empty); out = residual / rms(residual) * weight.
  // residual f32, delta and out act.
  virtual void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) = 0;

  // out = x * weight^T + bias. x act [rows, in]; out act or f32 [rows, out]. `w` comes from
  // prepare(), like every weight of an op. A weight that is kept in f32 is multiplied in f32,
  // whatever the dtype of x.
  virtual void linear(Tensor out, Tensor x, const Linear& w) = 0;

  // A hint without effect on any result: w will be the next weight after the operations so far.
  virtual void soon(const Linear& /*w*/) {}

  // Hints without effect on any result. Operations between begin_aside() and end_aside() may be
  // computed at the same time as those outside, from the first such pair up to join(): neither
  // reads or writes what the other writes. No pair lies within another.
  virtual void begin_aside() {}
  virtual void end_aside() {}
  virtual void join() {}

  // qkv is act [rows, (heads + 2 * kv_heads) * head_dim], q heads first, then k, then v. In
  // place: RMS norm of each q and k head where the Norm is not empty, then rope at each row's
  // position. Then k and v go to their pages (rounded to the cache's dtype).
  virtual void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                         const RaggedBatch& batch, const KvLayer& kv) = 0;

  // linear(qkv, x, w), then gqa_store of qkv. Padding rows of qkv may stay as they were.
  virtual void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                           const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) = 0;

  // out [rows, heads * head_dim] act; q the same shape (its rows may be strided). Row at
  // position p attends to positions (p - window, p], or [0, p] when window is 0, with scores
  // scaled by head_dim^-0.5. Reads keys and values from the cache only. Where q and cache are bf16,
  // the weights that values are multiplied by may be rounded to bf16.
  virtual void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                          const KvLayer& kv) = 0;

  // A matrix of its own for each head: out[r * heads + h] = x[r * heads + h] * w[h]^T. x act
  // [rows * heads, in], out act [rows * heads, out]; rows of both may be strided. `w` is a stack
  // [heads, out, in] that prepare() keeps as plain values of the dtype of x.
  virtual void heads_linear(Tensor out, Tensor x, const Linear& w) = 0;

  // Multi-head latent attention in its absorbed form, whatever the number of rows. q act [rows,
  // heads * spec.q_dim()], in place: rope on the last rope_dim elements of every head. kv f32
  // [rows, spec.cached_dim()], whose rows may be strided: RMS norm of the first kv_rank elements,
  // rope on the others; both go to the row's page, rounded once to the cache's dtype, and kv stays
  // as it is. Padding rows of q may stay as they were. cache.k is [num_pages, page_size, 1,
  // cached_dim()] of floats, or u8 rows of ops/latent_row.h (made from the f32); cache.v empty.
  virtual void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec,
                         const RaggedBatch& batch, const KvLayer& cache) = 0;

  // out and q_latent act [rows * heads, kv_rank], q_rope act [rows * heads, rope_dim] (rows of
  // each may be strided). Row r * heads + h at position p attends to positions [0, p], all heads to
  // the same cached rows c: scores are spec.scale * (q_latent . c[0, kv_rank) + q_rope . c[kv_rank,
  // cached_dim())), and out is the mean of c[0, kv_rank) with the weights of their softmax. Where
  // q is bf16 and the cache is not f32, the weights may be rounded to bf16.
  virtual void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                          const RaggedBatch& batch, const KvLayer& cache) = 0;

  // Latent attention from mla_store's q [rows, heads * spec.q_dim()] to the values [rows, heads *
  // spec.v_dim] of every head; both act and contiguous. Computes heads_linear() of the first
  // nope_dim elements of each head by `absorb`, mla_attend(), and heads_linear() of that by
  // `value`. Scratch comes from the arena: 2 * rows * heads * kv_rank elements of act.
  //
  // Where batch_invariant() is false, rows of a sequence with many new ones may be computed
  // un-absorbed instead: keys absorb[h]^T * c and values value[h] * c of every head, perhaps
  // rounded to act, are made of all cached c of the sequence, and the rows attend to them. That
  // takes fewer operations, and rounds differently.
  virtual void latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                             const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                             Arena& arena);

  // gate_up [rows, 2 * width], gate first; out = act(gate) * up.
  virtual void gated_act(Tensor out, Tensor gate_up, Act act) = 0;

  // out = act(gate) * up, (gate, up) = x * weight^T + bias, weight [2 * width, in] with the gate
  // first; gate and up may be rounded to act on the way. Scratch comes from the arena.
  virtual void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) = 0;

  // logits [T, router.experts] f32; bias [router.experts] f32 or empty. In f32: a logit's weight is
  // its softmax over all experts, or its sigmoid; its score is that plus the bias. Of the
  // router.groups, the `keep` that their scores judge best remain (ties to the lower group), and
  // experts of the others are not chosen, as if their scores were -inf. The top_k experts of the
  // highest scores are chosen (ties to the lower expert). Where router.renorm, their weights are
  // divided by their sum, which is at least 1e-12 with softmax and gains 1e-20 with sigmoid; then
  // they are multiplied by router.factor. After them come the router.always experts that have no
  // logit, with weight 1. Which of the experts are here changes neither choice nor weights. Tensors
  // of the result come from the arena.
  virtual Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) = 0;

  // out[t] = sum over k = 0..K-1, in this order, of weight[t,k] * expert(x[t]), without those that
  // are not here (zeros where none of a token's is), f32 inside, but the input of an expert's down
  // projection and its result may be rounded to act. gate_up [E, 2 * width, hidden], down [E,
  // hidden, width], kept in formats of the dtype of x or in quantized ones. Scratch comes from the
  // arena.
  virtual void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
                       const Linear& down, Act act, Arena& arena) = 0;

  virtual void add(Tensor out, Tensor x) = 0;  // out += x; act
  virtual void relu(Tensor x) = 0;             // x = max(x, 0), NaN as it is; f32 or act
  virtual void gather_rows(Tensor out, Tensor x, Tensor rows) = 0;

  // Sampling. Logits are f32 [rows, vocab]. The tensors of changes, edits and penalties, and those
  // of count_tokens() but its lists, may lie in page-locked host memory.
  virtual void store_edits(const EditPages& pages, const EditChanges& changes) = 0;
  virtual void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) = 0;
  // Bans the tokens that a grammar does not allow: logits[rows[i]][t] = -inf where bit t % 32 of
  // allowed[i][t / 32] is clear. rows [n] i32, each row at most once; allowed [n, ceil(vocab / 32)]
  // i32. Both may lie in page-locked host memory.
  virtual void mask_logits(Tensor logits, Tensor rows, Tensor allowed) = 0;
  // The output of slots[i] has gained tokens[rows[i]]: the count of its entry grows by 1, and a new
  // token gets an entry, for which there must be room. All i32; each slot at most once.
  virtual void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) = 0;
  virtual void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) = 0;
  // out_ids [rows] i32. Greedy: the first maximum. Otherwise, on probabilities softmax(logits /
  // temperature): drop p < min_p * max; keep the top_k; renormalise; keep the smallest set of most
  // likely tokens whose sum reaches top_p (ties to the lower id); renormalise; and invert the
  // cumulative sum, in order of falling probability, at the uniform that (seed, draw) gives.
  virtual void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) = 0;
  // Each row of logits becomes the natural logarithms of the probabilities with which sample()
  // draws its tokens: -inf where it never does; of greedy rows 0 for the one token.
  virtual void draw_logprobs(Tensor logits, const SampleBatch& batch) = 0;
  // Speculative sampling (Leviathan et al. 2023; Chen et al. 2023), which leaves the distribution
  // of the target untouched. target and draft are f32 [rows, vocab] of draw_logprobs(). Check i is
  // of a token that was drawn from row draft_row[i] of `draft`, against row row[i] of `target`: the
  // token is kept with the probability min(1, p / q), else one is drawn from max(p - q, 0),
  // renormalised. What comes out is written to ids[row[i]]; where p = q for all tokens up to
  // rounding, so that nothing is left to draw from, a token that is not kept leaves ids as it was.
  virtual void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) = 0;
  // Says which drafts of a step are kept, so that what follows need not wait for the host.
  virtual void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) = 0;
  // values[i] -= amounts[slots[i]] where slots[i] >= 0. values i64, others i32.
  virtual void take_back(Tensor values, Tensor slots, Tensor amounts) = 0;
  // chosen [rows] i32 -> chosen_logprob [rows] f32, chosen_rank [rows] i32 (1 = best; tokens of
  // equal logit share the better rank); top_ids i32 and top_logprobs f32 [rows, N], best first,
  // ties to the lower id; N may be 0 (then the tensors are empty).
  virtual void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                        Tensor top_logprobs, Tensor logits, Tensor chosen) = 0;
};

std::unique_ptr<Ops> make_reference_ops();
// `threads` 0 stands for one per core that this process may use.
std::unique_ptr<Ops> make_cpu_ops(int threads);
struct CudaOptions {
  int device = 0;
  int max_seqs = 1024, max_rows = 32768;  // bounds of a step; padding counts
  bool graphs = true;                     // replay() records CUDA graphs
  bool gather = true;        // fuse successive operations on one row into one kernel. On a device,
                             // only one Ops at a time may have such kernels in flight. Never under
                             // MPS, where another process's kernel may run in between
  bool synchronous = false;  // wait after every operation, so that an error is reported where it
                             // occurs; then all tensors may lie in page-locked host memory
  bool portable = false;     // use only kernels that also run on devices before Hopper (compute
                             // capability 8)
  // batch_invariant() is true: one order of additions for every number of rows. It costs speed
  // (docs/performance.md), and nothing is gathered. Needs Hopper.
  bool batch_invariant = false;
  bool pack_experts = false;  // prepare() packs bf16 experts as pre-swizzled tiles; off, because on
                              // an H200 row-major weights are up to 1 % faster
  size_t shared_memory = 0;  // bytes of shared memory that a block of a sampling kernel may use; 0:
                             // what the device has
};
// Throws LoadError where there is no such device, or CUDA is not built.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);

// Returns the uniform number in [0, 1) for draw number `draw` of `seed`: the same on every backend.
double uniform_draw(uint64_t seed, uint64_t draw);

}  // namespace skiff
