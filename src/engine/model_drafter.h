// engine/model_drafter.h -- drafts of the tokens that follow, from a model that is computed beside
// the one that they are for.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/batch_builder.h"
#include "engine/chained_passes.h"
#include "engine/kept_rows.h"
#include "engine/recorded_forwards.h"
#include "model/decoder.h"
#include "model/loader.h"
#include "ops/pinned_arena.h"
#include "sample/pending_logprobs.h"

namespace skiff::engine {

// The drafter is a smaller model with the same vocabulary (Leviathan et al. 2023, "Fast Inference
// from Transformers via Speculative Decoding") or a module that continues from the hidden rows of
// the model that is served (ModelSpec::joins: MTP, EAGLE), the same one for every further draft.
// Drafts are its most likely tokens, or, with Options::sampled, drawn as the sequence's own tokens
// are.
//
// Its keys and values are further layers of the blocks that the plan names, at the same positions,
// so they are shared, preempted and moved with those of the model. They are written for the rows
// that a step has computed and for drafts; what wrong drafts left is overwritten. A sequence has no
// drafts behind the end of its last block or of the context that the drafter supports. Where the
// scheduler has not checked the drafts of a sequence for kPatience draws, tokens are drafted for it
// at every kPatience-th draw only, so that a full batch hardly pays for them; unless their
// log-probabilities are requested (Span::draft_logprobs).
//
// Where nothing is drafted for a sequence (also: StepPlan::drafts is false), the drafter lags
// behind it and catches up in one pass, in which the last layer ends with keys and values: when
// tokens are drafted again, and at the end of each block, so that a block which others may find is
// complete in both models. A module needs the hidden rows of the tokens that it lags behind; about
// kLag of each slot are kept, one copy a step for all of them, and then it catches up. A pass of
// one sequence takes along those that lag by half as much: a pass costs about the same for many
// sequences as for one, and so few steps have one, whenever the sequences began. Rows of a prompt
// are computed at once where they are more. What is kept is kept when the step is launched, so the
// next one may be launched before the tokens of this one are known; the drafter then catches up
// while that one is in flight. It may: no block of a sequence is given away as long as a step in
// flight names it (sched/scheduler.h).
//
// Owned and driven by the thread that drives `ops`. All memory is taken by the constructor, but for
// the texts of sequences and page-locked memory for lists.
class ModelDrafter {
 public:
  struct Options {
    DType act = DType::kF32;
    std::vector<WeightFormat> formats;  // the quantized formats among weights
    sched::Limits limits;               // those of the steps behind which tokens are drafted
    int tokens = 1;                     // drafts of a sequence, at least 1
    // Drafts are drawn with the temperature, top_p, min_p and top_k of their sequence, and
    // draft_probs() keeps what they were drawn from. Requires all tokens as the vocabulary.
    bool sampled = false;
    std::vector<Token> vocabulary;  // the tokens that its logits are of, in order; empty: all
    std::vector<int> captures;      // numbers of sequences of passes that are recorded
  };
  // All must outlive the drafter; `kv` are the drafter's own layers.
  ModelDrafter(const model::LoadedModel& model, Ops& ops, comm::Mesh& mesh,
               std::span<const KvLayer> kv, const Options& options);
  // Returns the bytes that a drafter allocates where `ops` computes, besides weights and `kv`.
  static size_t memory_bytes(const ModelSpec& spec, const Options& options, int block_size,
                             const Ops& ops);

  // f32 [drafts_per_slot() * max_seqs, vocab]: row i * max_seqs + slot has the log-probabilities
  // (Ops::draw_logprobs) from which draft i of the slot was drawn last. Empty and 0 where drafts
  // are not sampled.
  Tensor draft_probs() const { return draft_probs_; }
  int drafts_per_slot() const { return draft_probs_.rows() > 0 ? tokens_ : 0; }

  int tokens() const { return tokens_; }  // Options::tokens
  static constexpr int kPatience = 8, kLag = 16;
  // Returns how many passes of the drafter have been computed.
  int64_t passes() const { return num_passes_; }
  // Returns by how many rows a pass of the drafter may exceed the steps behind which it drafts: one
  // for each sequence, the token that it has drawn.
  static int more_rows(const sched::Limits& limits) { return limits.max_seqs; }

  // From now on steps may be chained; called once, at start-up. Requires chains(). `slots` must
  // outlive the drafter, and have as many drafts as Options::tokens.
  void begin_chain(const SlotTokens& slots);
  // Returns whether tokens can be drafted without the host: the most likely ones of the whole
  // vocabulary, at every position that a step may have.
  bool chains() const {
    return vocabulary_.empty() && draft_probs_.rows() == 0 && max_context_ == limits_.max_context;
  }
  // Returns at how many positions behind a chained step's rows the drafter computes.
  int reach() const { return spec_.joins ? tokens_ - 1 : tokens_; }
  // Drafts behind a chained step whose draw has been started; see ChainedPasses, whose join() and
  // joined_drafts() these are. Hidden rows are draft()'s, of a step that was not kept.
  void chain(const ChainedPasses::Step& step);
  void join(const ChainedPasses::Step& step) { chained_->join(step); }
  Arrival joined_drafts(const ChainedPasses::Step& step) const {
    return chained_->joined_drafts(step);
  }
  // Reads on in the texts of a chained step, as draft() does, once its tokens are known. Spans
  // begin where their rows were.
  void read_chained(const StepPlan& plan, const StepResult& result);

  // For start-up, as StepExecutor::tune(): chooses the algorithms of a pass with the spans and
  // pages of `plan`, whose blocks it overwrites. `hidden` has the rows of such a step, for draft();
  // it is empty where no step has so many.
  void rehearse(const StepPlan& plan, Tensor hidden);
  // For start-up, as StepExecutor::record(): records passes, which overwrite the first blocks.
  void record();

  // Starts a slot, or starts it again.
  void open(const OpenSlot& slot);
  // Returns true if the next step may be launched before draft() is called for this one: nothing is
  // drafted behind it, and its rows are certain and few. Steps are asked about, kept and drafted
  // behind in the order of their plans.
  bool can_wait(const StepPlan& plan) const;
  // Keeps what draft() will need of the step. Requires can_wait(); called behind the forward pass.
  void keep(const StepPlan& plan, Tensor hidden);
  // Reads on in the texts of the plan's sequences and fills result.drafts. `hidden` has the rows of
  // the step behind the last norm, or their taps (ModelSpec::kBeside); it is empty if keep() was
  // called for the step. Sequences whose slots were not opened get no drafts.
  void draft(const StepPlan& plan, Tensor hidden, StepResult& result);

 private:
  struct DrawParams {
    float temperature = 0, top_p = 1, min_p = 0;
    int top_k = 0;
    uint64_t seed = 0;
  };
  struct Text {
    std::vector<Token> tokens;
    int computed = -1;  // leading positions with right keys and values; -1: not known yet
    int seen = -1;      // a module: the end of the rows behind those whose hidden rows are kept
    std::vector<int32_t> kept;  // a module: the kept rows of positions [computed, seen)
    std::vector<Token> ahead;   // a model: drafts whose keys and values follow those
    int unchecked = 0;          // draws in a row without drafts behind them
    DrawParams draw;            // with Options::sampled
  };
  // One draft for each span of a pass that samples.
  struct Drafted {
    std::vector<Token> tokens;
    std::vector<std::optional<PositionLogprobs>> logprobs;  // set if the span requests them
  };
  // One forward pass. Its spans are in the order of `of`; those that sample give a draft each.
  struct Pass {
    StepPlan plan{.page_start = {0}};
    std::vector<size_t> of;     // the span of the step that each span continues
    std::vector<int32_t> rows;  // with a module: the hidden row of each row
    void add(const StepPlan& step, size_t i, int begin, std::span<const Token> tokens, bool sample);
  };
  Text* continued(const Span& span, const std::vector<Token>& gained, bool kept);
  // Where a span of the step stands.
  struct Place {
    const StepPlan& plan;
    size_t span = 0;
    int row = 0;          // its first row
    int end = 0;          // the end of the positions whose right rows the step has computed
    bool wanted = false;  // tokens are drafted for its sequence
  };
  // The passes behind one step, in this order.
  struct Passes {
    int lag = kLag;  // sequences that a module lags behind by so many rows catch up
    Pass kept;       // rows that a module lagged behind
    Pass filled;     // rows of sequences for which nothing is drafted
    Pass drafted;
  };
  // A span whose sequence has a text.
  struct Followed {
    Text& text;
    Place at;
  };
  int end_of_pages(const StepPlan& plan, size_t i) const;
  Place place_of(const StepPlan& plan, size_t i, int row, const Text& text, int gained) const;
  bool ends_block(const Place& at, const Text& text) const;
  bool catches_up(const Place& at, const Text& text) const;
  void follow(const Place& at, Text& text, Passes& passes);
  void follow_as_module(const Place& at, Text& text, Tensor hidden, Passes& passes);
  bool stays_behind(const Place& at, const Text& text) const;
  void keep_rows(std::span<const Followed> behind, Tensor hidden);
  void catch_up(const Place& at, Text& text, Pass& pass);
  void add_rows(const Place& at, Text& text, int end, Pass& pass) const;
  void fill_rows(const Place& at, Text& text, int end, Tensor hidden, Pass& pass);
  void draft(const StepPlan& plan, Pass pass, Tensor hidden, StepResult& result);
  Tensor combined(const StepPlan& plan, Tensor taps);
  void fill(Pass& pass, Tensor hidden);
  Drafted compute(const Pass& pass, int depth, Tensor hidden);
  SampleBatch draws(const Pass& pass, int64_t n);
  void keep_draft_probs(const Pass& pass, int depth, Tensor logits, const SampleBatch& batch);
  std::vector<sample::PendingLogprobs> look_up(const Pass& pass, Tensor logits, Tensor drafts);
  Token token_of(Token logit) const;
  Tensor build(const Pass& pass, Tensor hidden);
  model::Forward forward(Tensor joined);
  void end_pass();
  Tensor join_rows(const Pass& pass, Tensor hidden);
  Pass next_pass(const StepPlan& plan, const Pass& last, const std::vector<Token>& drafts);
  Pass blank_pass(int seqs, int rows) const;

  const ModelSpec& spec_;
  Ops& ops_;
  std::span<const KvLayer> kv_;
  const DType act_;
  const int tokens_, max_rows_, max_context_;
  const sched::Limits limits_;  // Options::limits
  const std::vector<int> captures_;
  Arena arena_;
  model::Decoder decoder_;
  BatchBuilder builder_;
  StepFrame frame_;
  Buffer greedy_memory_, ids_memory_, joined_, carried_;
  Buffer combined_;  // ModelSpec::kBeside: hidden rows of a step
  const std::vector<Token> vocabulary_;
  KeptRows kept_;
  SampleBatch greedy_;  // [max_seqs]: draws of the most likely tokens
  Buffer draft_probs_memory_;
  Tensor draft_probs_;
  PinnedArena lists_;
  RecordedForwards recorded_;
  int64_t num_passes_ = 0;
  std::optional<uint64_t> pass_;  // the mark behind the last pass, which uses lists_ and frame_
  std::vector<std::optional<Text>> slots_;
  std::optional<ChainedPasses> chained_;
};

}  // namespace skiff::engine
