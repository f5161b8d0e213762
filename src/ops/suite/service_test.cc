#include "ops/suite/service.h"

#include <algorithm>
#include <vector>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

// Cases that call an operation thousands of times would fill memory with graphs, so from this
// number of calls on each operation is run once, directly.
constexpr int kRecordedCalls = 300;
constexpr int kTimes = 3;  // direct, recorded, replayed
// A device plans for eight kinds of attention layers, and keeps what graphs refer to.
constexpr int kAttended = 8;

void for_rows(const Tensor& t, const std::function<void(std::byte*, size_t)>& f) {
  const size_t row = static_cast<size_t>(t.cols()) * bytes(t.dtype);
  for (int64_t r = 0; r < t.rows(); ++r)
    f(static_cast<std::byte*>(t.data) + static_cast<size_t>(r * t.row_stride) * bytes(t.dtype),
      row);
}
void spoil(const Tensor& t) {
  for_rows(t, [](std::byte* row, size_t size) { std::fill_n(row, size, std::byte{0xff}); });
}

class InService final : public Ops {
 public:
  explicit InService(std::function<std::unique_ptr<Ops>()> make)
      : make_(std::move(make)), ops_(make_()) {}

  std::string_view name() const override { return ops_->name(); }
  Device device() const override { return ops_->device(); }
  bool batch_invariant() const override { return ops_->batch_invariant(); }
  size_t prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const override {
    return ops_->prepared_bytes(shape, keep);
  }
  size_t arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows,
                     DType act) const override {
    return ops_->arena_bytes(ffn, hidden, rows, act);
  }
  std::string arithmetic() const override { return ops_->arithmetic(); }
  void bind_thread() override { ops_->bind_thread(); }
  size_t scratch_bytes(const StepBounds& bounds) const override {
    return ops_->scratch_bytes(bounds);
  }
  void reserve(const StepBounds& bounds) override { ops_->reserve(bounds); }
  uint64_t mark() override { return ops_->mark(); }
  void wait(uint64_t mark) override { ops_->wait(mark); }
  uint64_t stamp() override { return ops_->stamp(); }
  double seconds_between(uint64_t from, uint64_t to) override {
    return ops_->seconds_between(from, to);
  }
  CopiesBeside copy_beside(std::span<const Arrival> copies) override {
    return ops_->copy_beside(copies);
  }
  void after(uint64_t number) override { ops_->after(number); }
  void wait_copies(uint64_t number) override { ops_->wait_copies(number); }
  void replay(const std::optional<ReplayKey>&, const std::function<void()>& work) override {
    work();
  }
  void rehearse(const std::function<void()>& work) override { work(); }

  void copy(Tensor out, Tensor x) override {
    ops_->copy(out, x);
    finish();
  }
  bool multiplies(const WeightFormat& format) const override { return ops_->multiplies(format); }
  void quantize(const Linear& q, Tensor plain, QuantRule rule) override {
    ops_->quantize(q, plain, rule);
  }
  Linear prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) override {
    return ops_->prepare(plain, keep, owner);
  }
  void begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) override {
    if (attended_ >= kAttended) {
      finish();
      ops_ = make_();
      attended_ = 0;
    }
    ops_->begin_step(batch, arrivals);
  }
  void load_tokens(Tensor tokens, Tensor last) override {
    ops_->load_tokens(tokens, last);
    finish();
  }
  void store_tokens(Tensor last, Tensor slots, Tensor tokens) override {
    ops_->store_tokens(last, slots, tokens);
    finish();
  }

  void embed(Tensor out, Tensor table, Tensor ids) override {
    run({.out = {out}}, [&] { ops_->embed(out, table, ids); });
  }
  void gather_rows(Tensor out, Tensor x, Tensor rows) override {
    run({.in = {x}, .out = {out}}, [&] { ops_->gather_rows(out, x, rows); });
  }
  void add(Tensor out, Tensor x) override {
    run({.in = {out, x}, .out = {out}}, [&] { ops_->add(out, x); });
  }
  void relu(Tensor x) override {
    run({.in = {x}, .out = {x}}, [&] { ops_->relu(x); });
  }
  void add_norm(Tensor out, Tensor residual, Tensor delta, const Norm& norm) override {
    run({.in = {residual, delta}, .out = {out, residual}},
        [&] { ops_->add_norm(out, residual, delta, norm); });
  }
  void linear(Tensor out, Tensor x, const Linear& w) override {
    ops_->rehearse([&] { ops_->linear(out, x, w); });
    run({.in = {x}, .out = {out}}, [&] { ops_->linear(out, x, w); });
  }
  void gqa_store(Tensor qkv, const Norm& q, const Norm& k, const Gqa& spec,
                 const RaggedBatch& batch, const KvLayer& kv) override {
    run({.in = {qkv}, .out = {qkv}}, [&] { ops_->gqa_store(qkv, q, k, spec, batch, kv); });
  }
  void gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                   const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) override {
    run({.in = {x}, .out = {qkv}}, [&] { ops_->gqa_project(qkv, x, w, q, k, spec, batch, kv); });
  }
  void gqa_attend(Tensor out, Tensor q, const Gqa& spec, const RaggedBatch& batch,
                  const KvLayer& kv) override {
    ++attended_;
    run({.in = {q}, .out = {out}}, [&] { ops_->gqa_attend(out, q, spec, batch, kv); });
  }
  void heads_linear(Tensor out, Tensor x, const Linear& w) override {
    run({.in = {x}, .out = {out}}, [&] { ops_->heads_linear(out, x, w); });
  }
  void mla_store(Tensor q, Tensor kv, const Norm& norm, const Mla& spec, const RaggedBatch& batch,
                 const KvLayer& cache) override {
    run({.in = {q, kv}, .out = {q}}, [&] { ops_->mla_store(q, kv, norm, spec, batch, cache); });
  }
  void mla_attend(Tensor out, Tensor q_latent, Tensor q_rope, const Mla& spec,
                  const RaggedBatch& batch, const KvLayer& cache) override {
    ++attended_;
    run({.in = {q_latent, q_rope}, .out = {out}},
        [&] { ops_->mla_attend(out, q_latent, q_rope, spec, batch, cache); });
  }
  void latent_attend(Tensor values, Tensor q, const Linear& absorb, const Linear& value,
                     const Mla& spec, const RaggedBatch& batch, const KvLayer& cache,
                     Arena& arena) override {
    ++attended_;
    run({.in = {q}, .out = {values}},
        [&] { ops_->latent_attend(values, q, absorb, value, spec, batch, cache, arena); });
  }
  void gated_act(Tensor out, Tensor gate_up, Act act) override {
    run({.in = {gate_up}, .out = {out}}, [&] { ops_->gated_act(out, gate_up, act); });
  }
  void gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) override {
    run({.in = {x}, .out = {out}}, [&] { ops_->gated_linear(out, x, w, act, arena); });
  }
  Routing route(Tensor logits, Tensor bias, const Router& router, Arena& arena) override {
    const size_t mark = arena.mark();
    Routing routing;
    run({.in = {logits}}, [&] {
      arena.rewind(mark);
      routing = ops_->route(logits, bias, router, arena);
    });
    return routing;
  }
  void experts(Tensor out, Tensor x, const Routing& routing, const Linear& gate_up,
               const Linear& down, Act act, Arena& arena) override {
    const size_t mark = arena.mark();
    run({.in = {x}, .out = {out}}, [&] {
      arena.rewind(mark);
      ops_->experts(out, x, routing, gate_up, down, act, arena);
    });
  }
  void store_edits(const EditPages& pages, const EditChanges& changes) override {
    ops_->store_edits(pages, changes);
    finish();
  }
  void edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) override {
    run({.in = {logits}, .out = {logits}}, [&] { ops_->edit_logits(logits, pages, edits); });
  }
  void mask_logits(Tensor logits, Tensor rows, Tensor allowed) override {
    run({.in = {logits}, .out = {logits}}, [&] { ops_->mask_logits(logits, rows, allowed); });
  }
  void count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) override {
    ops_->count_tokens(seen, slots, tokens, rows);
    finish();
  }
  void penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) override {
    run({.in = {logits}, .out = {logits}}, [&] { ops_->penalize(logits, seen, penalties); });
  }
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override {
    run({.in = {logits}, .out = {out_ids}}, [&] { ops_->sample(out_ids, logits, batch); });
  }
  void draw_logprobs(Tensor logits, const SampleBatch& batch) override {
    run({.in = {logits}, .out = {logits}}, [&] { ops_->draw_logprobs(logits, batch); });
  }
  void check_drafts(Tensor ids, Tensor target, Tensor draft, const DraftChecks& checks) override {
    ops_->check_drafts(ids, target, draft, checks);
    finish();
  }
  void settle_drafts(const DraftVerdicts& drafts, const DraftsSettled& out) override {
    ops_->settle_drafts(drafts, out);
    finish();
  }
  void take_back(Tensor values, Tensor slots, Tensor amounts) override {
    ops_->take_back(values, slots, amounts);
    finish();
  }
  void logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids, Tensor top_logprobs,
                Tensor logits, Tensor chosen) override {
    run({.in = {logits}, .out = {chosen_logprob, chosen_rank, top_ids, top_logprobs}}, [&] {
      ops_->logprobs(chosen_logprob, chosen_rank, top_ids, top_logprobs, logits, chosen);
    });
  }

 private:
  struct Uses {
    std::vector<Tensor> in = {};   // floats that a kernel before the operation has written
    std::vector<Tensor> out = {};  // what the operation writes; may be among `in`
  };

  void finish() { ops_->wait(ops_->mark()); }

  void run(const Uses& uses, const std::function<void()>& op) {
    if (++calls_ > kRecordedCalls) {
      op();
      return finish();
    }
    finish();
    memory_.reset();
    // Page-locked memory cannot be allocated while a graph is recorded.
    const std::vector<Tensor> originals = copies_of(uses.in);
    std::vector<Tensor> rows;
    rows.reserve(originals.size());
    for (const Tensor& t : originals) rows.push_back(every_row(t));
    std::vector<std::byte> first;
    for (int time = 0; time < kTimes; ++time) {
      for (const Tensor& t : uses.out) spoil(t);
      for (const Tensor& t : uses.in) spoil(t);
      ops_->replay(ReplayKey{.variant = calls_}, [&] {
        for (size_t i = 0; i < originals.size(); ++i)
          if (originals[i]) ops_->gather_rows(uses.in[i], originals[i], rows[i]);
        op();
      });
      finish();
      std::vector<std::byte> all;
      for (const Tensor& t : uses.out)
        for_rows(t, [&](std::byte* row, size_t size) { all.insert(all.end(), row, row + size); });
      if (time == 0) first = all;
      EXPECT_TRUE(all == first) << (time == 1 ? "recorded" : "replayed") << ", call " << calls_;
    }
  }

  std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> copies;
    for (const Tensor& t : tensors) {
      Tensor& copy = copies.emplace_back();
      if (!t || t.elements() == 0) continue;
      copy = memory_.take(t.dtype, {t.rows(), t.cols()});
      convert(copy, t);
    }
    return copies;
  }
  Tensor every_row(const Tensor& t) {
    if (!t) return {};
    const Tensor ids = memory_.take(DType::kI32, {t.rows()});
    for (int64_t r = 0; r < t.rows(); ++r) ids.as<int32_t>()[r] = static_cast<int32_t>(r);
    return ids;
  }

  std::function<std::unique_ptr<Ops>()> make_;
  std::unique_ptr<Ops> ops_;
  PinnedArena memory_;
  int calls_ = 0, attended_ = 0;
};

}  // namespace

std::unique_ptr<Ops> make_in_service(std::function<std::unique_ptr<Ops>()> make) {
  return std::make_unique<InService>(std::move(make));
}

}  // namespace skiff::suite
