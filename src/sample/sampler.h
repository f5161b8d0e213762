// sample/sampler.h -- samples tokens and log-probabilities from rows of logits.
//
// Order of work for a row (message/request.h states the same for callers): log-probabilities are of
// the raw logits, unless Limits::logprobs says otherwise; then the rules of sample/rules.h edit the
// logits; then the tokens that a constraint does not allow become impossible; then temperature,
// min_p, top_k, top_p and the draw, all inside Ops::sample.
//
// Where Ops computes lie the tokens that sequences with penalties have seen, counted there
// (sample/token_counts.h), and biases and bans as lists of edits (sample/edit_store.h). Sequences
// with the same biases share a list.
//
// The tokens of a sequence are a pure function of its params, its history and its logits: they do
// not depend on the batch, on preemption or on guesses, because the draw is numbered by the output
// index.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "message/draft_check.h"
#include "message/logprobs_mode.h"
#include "message/step.h"
#include "ops/pinned_arena.h"
#include "ops/upload.h"
#include "sample/edit_store.h"
#include "sample/pending_logprobs.h"
#include "sample/slot_bans.h"
#include "sample/slot_state.h"
#include "sample/token_counts.h"

namespace skiff::sample {

constexpr Token kNoToken = -1;

// One row of logits to draw from: that of the slot's next token or, if `depth` > 0, that of the
// token after `depth` guesses. Its token counts only if every guess before it was right.
struct DrawRow {
  int slot = 0;
  int depth = 0;
  int after = -1;  // if depth > 0: the row of this draw whose token was guessed
  Token guess = -1;
  Token instead = kNoToken;  // for benchmarks: if set, the row gives this token whatever it draws
};

// One entry per row of a draw; kNoToken for a row behind a wrong guess.
struct SampleOutput {
  std::vector<Token> tokens;
  std::vector<std::optional<PositionLogprobs>> logprobs;  // set if the slot's params request them
};

// What a draw is told of its rows.
struct DrawColumns {
  SampleBatch sample;
  Penalties penalties;   // those of the rows whose slots have some
  SampleBatch plain;     // temperatures alone; where guesses are looked up among the best tokens
  DraftChecks checks;    // drafts that were sampled; with DraftRule::kRejection
  SampleBatch reported;  // rows whose log-probabilities are processed ones
  // [rows] i32: the slot, where it has guesses in a draw that is pending: sample.draw is the number
  // if all of them are right. Others have -1. Empty if there is none.
  Tensor behind;
};

// How guesses are checked. With DraftRule::kRejection, guess d (from 1) of a slot was drawn from
// row (d - 1) * max_slots + slot of `draft_probs`, f32 [drafts_per_slot * max_slots, vocab] of
// Ops::draw_logprobs; guesses behind drafts_per_slot were certain. `refused` is that of MovedBack:
// with it a slot may have guesses in a pending draw while the next one begins.
struct Checking {
  DraftCheck how;
  Tensor draft_probs;
  int drafts_per_slot = 0;
  Tensor refused = {};
};

// A draw that has been started.
struct PendingDraw {
  std::vector<DrawRow> rows;
  Tensor tokens;  // [rows] i32 where Ops computes, usable by operations before the host knows them
  Tensor host_tokens;
  std::vector<PendingLogprobs> logprobs;
  // With a rule that looks at the most likely tokens: those of all rows, and, as `logprobs`, what
  // the guesses behind rows have, which may be kept although other tokens were drawn.
  std::optional<PendingLogprobs> best;
  std::vector<PendingLogprobs> guessed;
};

// Owned and driven by the thread that drives `ops`, which must outlive it. A draw may be finished
// once Ops::wait has returned for a mark made after its start, and draws are finished in the order
// in which they were started. At most two may be pending.
class Sampler {
 public:
  struct Limits {
    int vocab = 0, max_slots = 0;
    int max_rows = 0;     // rows of a draw; at least max_slots, which is also the default
    int max_context = 0;  // tokens of a sequence; 0: no bound
    LogprobsMode logprobs = LogprobsMode::kRawLogprobs;  // what is reported of drawn tokens
  };
  Sampler(const Limits& limits, Ops& ops, const Checking& checking = {});
  // The bytes that a sampler allocates where Ops computes, and those in page-locked host memory;
  // memory for requested log-probabilities comes on top.
  static size_t bytes(Device device, const Limits& limits);
  static size_t pinned_bytes(int max_rows);

  // Starts a slot or starts it again with a longer history: the next draw is then number
  // history.size() - prompt_len. What the slot held before is forgotten.
  void open(const OpenSlot& slot);

  // Returns whether a draw of these rows depends on tokens of a pending draw, which must then be
  // finished first.
  bool needs_pending(std::span<const DrawRow> rows) const;

  // Guesses are checked in one of two ways, both of which give, by the default rule, the tokens
  // that decoding without guesses would give. If the rules do not depend on the guesses, they are
  // checked in one draw with a row for each guess; otherwise with one draw per depth, for the slots
  // whose guesses have all been right so far.
  //
  // Returns whether the slot's next token and those behind `guesses` guesses may be drawn together.
  // `raw` is the number of further raw rows that the draw can keep for log-probabilities:
  // raw_room() at first, and reduced here by the rows that the slot takes.
  bool draws_at_once(int slot, int guesses, int& raw) const;
  int raw_room(std::span<const DrawRow> firsts) const;  // `firsts`: rows of the draw with depth 0

  // Draws one token per row and counts it into its slot. logits f32 [rows, vocab] is scratch: the
  // rules edit it in place. A slot has one row of depth 0, and more only as draws_at_once() allows,
  // by rising depth. If there are fewer rows than logits has, they are its first ones.
  PendingDraw start(Tensor logits, std::span<const DrawRow> rows);
  // The same in two parts, so that the slots' sampling parameters can be sent before the logits are
  // computed, in an upload of the caller: it begins the upload before columns() and sends it before
  // start(), which gets the same rows. The number of a slot's next draw depends on guesses in a
  // pending one: CHECKs that there are none, or Checking::refused.
  DrawColumns columns(Upload& upload, std::span<const DrawRow> rows) const;
  PendingDraw start(Tensor logits, std::span<const DrawRow> rows, const DrawColumns& columns);
  static size_t column_bytes(int max_rows);  // bytes that columns() takes of the upload
  // A draw that needs nothing but some of its columns can be recorded, with a fixed number of rows,
  // at least as many as are drawn. Returns whether a draw is such: the logits are not edited, their
  // log-probabilities not requested, and guesses checked by the default rule or the greedy one.
  bool draws_plainly(std::span<const DrawRow> rows) const;
  // columns() of such a draw with `most` rows, which lie in the same places whatever is drawn; the
  // rows behind the others are greedy. greedy_columns(): of rows that are all like that.
  DrawColumns whole_columns(Upload& upload, std::span<const DrawRow> rows, int64_t most) const;
  static DrawColumns greedy_columns(Upload& upload, int64_t most);
  // Then, instead of start(): begin(), and in the recorded work draw(), behind which the host's
  // tokens must be copied from the draw's. Their addresses depend on `most` alone where Ops
  // computes.
  PendingDraw begin(std::span<const DrawRow> rows, int64_t most);
  void draw(Tensor logits, const DrawColumns& columns);
  SampleOutput finish(const PendingDraw& draw);
  // Calls start(), waits, and calls finish().
  SampleOutput sample(Tensor logits, std::span<const DrawRow> rows);

  // Counts tokens that were not drawn here into an open slot's output.
  void accept(int slot, std::span<const Token> tokens);

  // Returns the log-probabilities of the known next token and of the n best (clamped to [0, vocab];
  // kAllLogprobs means all) for each row of logits [rows, vocab]. Requires next.size() == rows;
  // does not change the logits. Waits for the result.
  std::vector<PositionLogprobs> prompt_logprobs(Tensor logits, std::span<const Token> next, int n);

 private:
  struct Slot {
    Slot(const OpenSlot& opened, int vocab);
    void accept(Token token);

    SlotState state;
    SlotBans bans;
    Penalty penalty;
    std::shared_ptr<EditList> biases;         // null if there are none
    std::unique_ptr<TokenFollower> follower;  // null if there is no constraint
    int pending = 0;                          // draws that were started and not finished
    int guessed = 0;                          // rows behind guesses in these draws
    bool thinking = false;                    // see thinks(); only with DraftRule::kRelaxed
  };
  // How the distribution is shaped from which a row is drawn.
  struct Shape {
    float temperature = 1, top_p = 1, min_p = 0;
    int top_k = 0;
  };
  using Groups = std::map<int, std::vector<int32_t>>;  // rows by their number of best tokens

  const Slot& slot(int index) const;
  Slot& slot(int index);
  int clamp_top(int n) const;
  Groups logprob_groups(std::span<const DrawRow> rows) const;
  Tensor raw_rows(Tensor logits, const std::vector<int32_t>& rows, int64_t& saved);
  Shape shape_of(const DrawRow& row) const;
  SampleBatch reported_columns(Upload& upload, std::span<const DrawRow> rows) const;
  void keep_logits(const PendingDraw& draw, PendingLogprobs& group, Tensor logits);
  std::vector<Tensor> keep_rows(Tensor logits, const DrawColumns& columns, bool edits,
                                PendingDraw& draw);
  std::shared_ptr<EditList> share_biases(const SamplingParams& params);
  void close(std::optional<Slot>& slot);
  bool edits_any(std::span<const DrawRow> rows, const Penalties& penalties);
  void edit(Tensor logits, std::span<const DrawRow> rows, const Penalties& penalties);
  void mask(Tensor logits, std::span<const DrawRow> rows);
  SampleBatch sample_columns(Upload& upload, std::span<const DrawRow> rows) const;
  void fill_columns(const SampleBatch& columns, std::span<const DrawRow> rows) const;
  bool looks_at_best(std::span<const DrawRow> rows) const;
  SampleBatch plain_columns(Upload& upload, std::span<const DrawRow> rows,
                            const SampleBatch& sample) const;
  Tensor behind_column(Upload& upload, std::span<const DrawRow> rows) const;
  DraftChecks check_columns(Upload& upload, std::span<const DrawRow> rows) const;
  void look_up_guesses(Tensor raw, PendingDraw& draw);
  void look_up_best(Tensor logits, const DrawColumns& columns, PendingDraw& draw);
  void check_sampled(Tensor logits, const DrawColumns& columns, const PendingDraw& draw);
  void keep_guesses(const PendingDraw& draw, std::vector<Token>& tokens) const;
  static void take_guessed(const PendingDraw& draw, SampleOutput& out);
  void accept(Slot& slot, Token token);
  Penalties penalty_columns(Upload& upload, std::span<const DrawRow> rows) const;
  void count(const DrawRow& row, const SampleOutput& out, Token& token);

  int vocab_;
  const LogprobsMode reported_;
  Ops& ops_;
  const Checking checking_;
  Staging staging_;
  EditStore edits_;
  TokenCounts counts_;
  std::vector<std::optional<Slot>> slots_;
  Upload columns_;  // holds the DrawColumns
  Buffer ids_;      // [max_rows] i32, where Ops computes: the tokens drawn last
  Buffer raw_;      // [max_slots, vocab] f32: rows of logits that log-probabilities are of
  // Page-locked memory for one draw each, used in turns.
  std::array<PinnedArena, 3> turns_;
  size_t turn_ = 0;
  PinnedArena prompts_;
};

}  // namespace skiff::sample
