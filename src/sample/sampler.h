// sample/sampler.h -- from rows of logits to tokens and log-probabilities.
//
// Order of work for a row (message/request.h states the same for callers): log-probabilities are
// of the raw logits; then the rules of sample/rules.h edit the logits; then temperature, min_p,
// top_k, top_p and the draw, all inside Ops::sample.
//
// What the rules say of a sequence is kept as lists, which a new token changes in a place or two,
// and which lie where Ops computes (sample/edit_store.h). Sequences with the same biases share a
// list.
//
// What a sequence gets is a pure function of its params, its history and its logits: not of the
// batch that it shares, nor of preemption, nor of guesses, because the draw is numbered by the
// output index.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "message/step.h"
#include "ops/pinned_arena.h"
#include "ops/upload.h"
#include "sample/edit_store.h"
#include "sample/slot_edits.h"
#include "sample/slot_state.h"

namespace skiff::sample {

// One row of logits to draw from: the slot's next token, or, with `depth` guesses behind what the
// slot has said, the one after those. It counts only where every guess before it has come true.
struct DrawRow {
  int slot = 0;
  int depth = 0;
  int after = -1;  // with a depth: the row of this draw whose token was guessed
  Token guess = -1;
};

constexpr Token kNoToken = -1;

// One entry per row of a draw. A row behind a guess that has not come true has kNoToken.
struct SampleOutput {
  std::vector<Token> tokens;
  std::vector<std::optional<PositionLogprobs>> logprobs;  // set where the slot's params ask
};

// Log-probabilities that were asked for, and where they will be: host memory, once waited for.
struct PendingLogprobs {
  std::vector<int32_t> rows;  // of the logits
  int top = 0;
  Tensor tokens, logprob, rank;  // [rows]
  Tensor top_ids, top_logprobs;  // [rows, top]; empty where top is 0
};

// A draw that was asked for.
struct PendingDraw {
  std::vector<DrawRow> rows;
  Tensor tokens;  // [rows] i32 where Ops computes: there before the host knows them
  Tensor host_tokens;
  std::vector<PendingLogprobs> logprobs;
};

// Owned and driven by the thread that drives `ops`, which must outlive it. What is pending may be
// finished once Ops::wait has returned for a later mark, in the order in which it was started, and
// at most two draws, and reports of prompts, may be pending.
class Sampler {
 public:
  // `max_rows`: of a draw; at least, and by default, as many as slots.
  Sampler(int vocab, int max_slots, Ops& ops, int max_rows = 0);
  // What a sampler allocates where Ops computes, and in page-locked host memory besides,
  // less the log-probabilities that somebody asks for.
  static size_t bytes(Device device, int vocab, int max_slots, int max_rows);
  static size_t pinned_bytes(int max_rows);

  // Starts a slot or starts it again with a longer history: the next draw is then number
  // history.size() - prompt_len. What the slot held before is forgotten.
  void open(const OpenSlot& slot);

  // Whether a draw of these rows must know tokens of a draw still pending, which is then to be
  // finished first.
  bool needs_pending(std::span<const DrawRow> rows) const;

  // Guesses are checked in one of two ways, and the outcome of both is what decoding would give. In
  // one draw, with a row for each guess, where what the rules say does not depend on the guesses.
  // Otherwise with one draw per depth, of the slots whose guesses have all come true so far.
  //
  // Whether the slot's next token and those behind `guesses` guesses may be one draw. `raw` is how
  // many more raw rows the draw can keep for log-probabilities: raw_room() at first, and reduced
  // here by what a slot takes.
  bool draws_at_once(int slot, int guesses, int& raw) const;
  int raw_room(std::span<const DrawRow> firsts) const;  // `firsts`: the draw's rows of depth 0

  // Draws one token per row and counts it into its slot. logits f32 [rows, vocab] is scratch: the
  // rules edit it in place. A slot has one row of depth 0, and more only as draws_at_once() allows,
  // by rising depth. Rows may be fewer than logits has; they are the first.
  PendingDraw start(Tensor logits, std::span<const DrawRow> rows);
  // The same in two parts, so that what the draw needs of every slot can travel ahead of the
  // logits, in an upload of the caller's: begun before columns(), sent before start(), for the same
  // rows. CHECKs that no slot has guesses in a draw still pending: the number of its next draw
  // depends on them.
  SampleBatch columns(Upload& upload, std::span<const DrawRow> rows) const;
  PendingDraw start(Tensor logits, std::span<const DrawRow> rows, const SampleBatch& columns);
  static size_t column_bytes(int max_rows);  // of the upload
  SampleOutput finish(const PendingDraw& draw);
  // Both, and the waiting between them.
  SampleOutput sample(Tensor logits, std::span<const DrawRow> rows);

  // Counts tokens that came from elsewhere into an open slot's output.
  void accept(int slot, std::span<const Token> tokens);

  // For each row of logits [rows, vocab] the known token that follows it, and the n best (clamped
  // to [0, vocab]; kAllLogprobs means all). next.size() == rows; logits are left as they are.
  // Waits for the answer.
  std::vector<PositionLogprobs> prompt_logprobs(Tensor logits, std::span<const Token> next, int n);

 private:
  struct Slot {
    Slot(const OpenSlot& opened, int vocab) : state(opened), edits(state, vocab) {}
    void accept(Token token);

    SlotState state;
    SlotEdits edits;
    std::shared_ptr<EditList> biases;  // null: none
    int pending = 0;                   // draws started and not finished
    int guessed = 0;                   // rows behind guesses in those draws
  };
  using Groups = std::map<int, std::vector<int32_t>>;  // rows by how many of the best they want

  const Slot& slot(int index) const;
  Slot& slot(int index);
  int clamp_top(int n) const;
  Groups logprob_groups(std::span<const DrawRow> rows) const;
  Tensor raw_rows(Tensor logits, const std::vector<int32_t>& rows, int64_t& saved);
  std::shared_ptr<EditList> share_biases(const SamplingParams& params);
  void close(std::optional<Slot>& slot);
  bool edits_any(std::span<const DrawRow> rows);
  void edit(Tensor logits, std::span<const DrawRow> rows);
  void count(const DrawRow& row, const SampleOutput& out, Token& token);
  void look_up(PinnedArena& memory, PendingLogprobs& group, Tensor logits);
  static std::vector<PositionLogprobs> read(const PendingLogprobs& group);

  int vocab_;
  Ops& ops_;
  EditStore edits_;
  std::vector<std::optional<Slot>> slots_;
  Upload columns_;  // of SampleBatch
  Buffer ids_;      // [max_rows] i32: tokens drawn last, where Ops computes
  Buffer raw_;      // [max_slots, vocab] f32: rows of logits as they were before the rules
  // What goes to and comes from Ops in a draw, taken in turns.
  std::array<PinnedArena, 3> turns_;
  size_t turn_ = 0;
  PinnedArena prompts_;
};

}  // namespace skiff::sample
