#include "sample/sampler.h"

#include <algorithm>
#include <utility>

#include "sample/rules.h"
#include "sample/verdict.h"

namespace skiff::sample {
namespace {

template <class T>
void fill(Tensor to, const std::vector<T>& from) {
  std::ranges::copy(from, to.as<T>());
}

SampleBatch take_columns(Upload& upload, int64_t rows) {
  return {.temperature = upload.take(DType::kF32, {rows}),
          .top_p = upload.take(DType::kF32, {rows}),
          .min_p = upload.take(DType::kF32, {rows}),
          .top_k = upload.take(DType::kI32, {rows}),
          .seed = upload.take(DType::kI64, {rows}),
          .draw = upload.take(DType::kI64, {rows})};
}

SampleBatch there(const Upload& upload, SampleBatch batch) {
  for (Tensor* t :
       {&batch.temperature, &batch.top_p, &batch.min_p, &batch.top_k, &batch.seed, &batch.draw})
    *t = upload.there(*t);
  return batch;
}

// Columns of greedy rows without guesses that are pending.
DrawColumns take_greedy(Upload& upload, int64_t rows) {
  const DrawColumns out{.sample = take_columns(upload, rows),
                        .behind = upload.take(DType::kI32, {rows})};
  for (const Tensor& t : {out.sample.temperature, out.sample.top_p, out.sample.min_p})
    std::fill_n(t.as<float>(), rows, 0.0f);
  std::fill_n(out.sample.top_k.as<int32_t>(), rows, 0);
  for (const Tensor& t : {out.sample.seed, out.sample.draw}) std::fill_n(t.as<int64_t>(), rows, 0);
  std::fill_n(out.behind.as<int32_t>(), rows, -1);
  return out;
}

DrawColumns there(const Upload& upload, const DrawColumns& taken) {
  return {.sample = there(upload, taken.sample), .behind = upload.there(taken.behind)};
}

// Returns whether a Sampler::Slot changes logits before they are drawn from, other than by
// penalties.
constexpr auto edits_logits = [](const auto& slot) {
  return slot.biases || slot.follower || !slot.bans.list().empty();
};

// Steps in flight behind a sequence's last one may draw for it too.
constexpr int kInFlight = 2;

int counted_tokens(const Sampler::Limits& limits) {
  return limits.max_context > 0 ? limits.max_context + kInFlight : limits.vocab;
}

int rows_of(const Sampler::Limits& limits) { return std::max(limits.max_slots, limits.max_rows); }

size_t raw_bytes(int vocab, int max_slots) {
  return static_cast<size_t>(max_slots) * static_cast<size_t>(vocab) * sizeof(float);
}

}  // namespace

// A row has four values of 4 bytes and two of 8, five of 4 where it has penalties, four where the
// most likely tokens are looked at, five where a draft that was sampled is checked, four of 4 and
// two of 8 where processed log-probabilities are reported, and one where guesses are pending; each
// array begins on a cache line.
size_t Sampler::column_bytes(int max_rows) {
  return static_cast<size_t>(max_rows) * 124 + 27 * kTensorAlign;
}

Sampler::Sampler(const Limits& limits, Ops& ops, const Checking& checking)
    : vocab_(limits.vocab),
      reported_(limits.logprobs),
      ops_(ops),
      checking_(checking),
      staging_(ops),
      edits_(ops, staging_, vocab_, limits.max_slots),
      counts_(ops, staging_, vocab_, limits.max_slots, counted_tokens(limits)),
      slots_(static_cast<size_t>(limits.max_slots)),
      columns_(ops, column_bytes(rows_of(limits))),
      ids_(ops.device(), static_cast<size_t>(rows_of(limits)) * sizeof(Token)),
      raw_(ops.device(), raw_bytes(vocab_, limits.max_slots)) {}

size_t Sampler::bytes(Device device, const Limits& limits) {
  const auto& [vocab, max_slots, max_rows, max_context, reported] = limits;
  return EditStore::bytes(vocab, max_slots) +
         TokenCounts::bytes(vocab, max_slots, counted_tokens(limits)) +
         raw_bytes(vocab, max_slots) + static_cast<size_t>(rows_of(limits)) * sizeof(Token) +
         (device == Device{} ? TokenCounts::host_bytes(vocab) : column_bytes(rows_of(limits)));
}

size_t Sampler::pinned_bytes(int max_rows) { return Staging::kBytes + 2 * column_bytes(max_rows); }

Sampler::Slot::Slot(const OpenSlot& opened, int vocab)
    : state(opened), bans(state, vocab), penalty(penalty_of(opened.params)) {
  if (!opened.params.constraint) return;
  const size_t words = (static_cast<size_t>(vocab) + 31) / 32;
  SKIFF_CHECK_EQ(opened.params.constraint->mask_words(), words);
  follower = opened.params.constraint->follow();
  for (size_t i = static_cast<size_t>(opened.prompt_len); i < opened.history.size(); ++i)
    follower->accept(opened.history[i]);
}

void Sampler::Slot::accept(Token token) {
  if (follower) follower->accept(token);
  state.accept(token);
  bans.update(state);
}

void Sampler::open(const OpenSlot& slot) {
  const auto i = static_cast<size_t>(slot.slot);
  SKIFF_CHECK(slot.slot >= 0 && i < slots_.size(), "slot {} of {}", slot.slot, slots_.size());
  std::shared_ptr<EditList> biases = share_biases(slot.params);
  close(slots_[i]);
  Slot& s = slots_[i].emplace(slot, vocab_);
  s.biases = std::move(biases);
  if (s.penalty.any()) counts_.open(slot, s.penalty.counts_prompt());
  if (checking_.how.rule != DraftRule::kRelaxed) return;
  for (const Token token : slot.history) s.thinking = thinks(checking_.how, s.thinking, token);
}

void Sampler::close(std::optional<Slot>& slot) {
  if (!slot) return;
  edits_.release(slot->bans.list());
  if (slot->biases && slot->biases.use_count() == 1) edits_.release(*slot->biases);
  slot.reset();
}

// Returns the list of a slot with the same biases, or a new one.
std::shared_ptr<EditList> Sampler::share_biases(const SamplingParams& params) {
  std::vector<Edit> biases = biases_of(params, vocab_);
  if (biases.empty()) return nullptr;
  const EditList* seen = nullptr;
  for (const std::optional<Slot>& slot : slots_) {
    if (!slot || !slot->biases || slot->biases.get() == seen) continue;
    seen = slot->biases.get();
    if (std::ranges::equal(seen->entries(), biases)) return slot->biases;
  }
  return std::make_shared<EditList>(std::move(biases));
}

void Sampler::accept(int index, std::span<const Token> tokens) {
  Slot& s = slot(index);
  for (const Token token : tokens) {
    accept(s, token);
    if (s.penalty.any()) counts_.count(index, token);
  }
}

void Sampler::accept(Slot& slot, Token token) {
  slot.accept(token);
  slot.thinking = thinks(checking_.how, slot.thinking, token);
}

const Sampler::Slot& Sampler::slot(int index) const {
  const auto i = static_cast<size_t>(index);
  SKIFF_CHECK(index >= 0 && i < slots_.size() && slots_[i], "slot {} is not open", index);
  return *slots_[i];
}

Sampler::Slot& Sampler::slot(int index) {
  return const_cast<Slot&>(std::as_const(*this).slot(index));
}

bool Sampler::needs_pending(std::span<const DrawRow> rows) const {
  return std::ranges::any_of(rows, [this](const DrawRow& row) {
    const Slot& s = slot(row.slot);
    return s.pending > 0 && s.state.looks_back();
  });
}

int Sampler::raw_room(std::span<const DrawRow> firsts) const {
  const auto kept = std::ranges::count_if(firsts, [this](const DrawRow& row) {
    return slot(row.slot).state.params().logprobs != kNoLogprobs;
  });
  return static_cast<int>(std::ssize(slots_) - kept);
}

// Rules that do not look back make the same edits to every row of the slot. Penalties count every
// token that is drawn, so each guess needs a draw of its own.
bool Sampler::draws_at_once(int index, int guesses, int& raw) const {
  const Slot& s = slot(index);
  if (s.state.looks_back() || s.penalty.any()) return false;
  if (s.state.params().logprobs == kNoLogprobs) return true;
  if (guesses > raw) return false;
  raw -= guesses;
  return true;
}

PendingDraw Sampler::start(Tensor logits, std::span<const DrawRow> rows) {
  columns_.begin();
  const DrawColumns sent = columns(columns_, rows);
  columns_.send();
  return start(logits, rows, sent);
}

PendingDraw Sampler::start(Tensor logits, std::span<const DrawRow> draw_rows,
                           const DrawColumns& columns) {
  const auto rows = static_cast<int64_t>(draw_rows.size());
  SKIFF_CHECK(rows <= logits.rows(), "{} rows to draw, {} rows of logits", rows, logits.rows());
  SKIFF_CHECK_EQ(logits.cols(), vocab_);
  SKIFF_CHECK(!needs_pending(draw_rows), "a draw before the one that it depends on is finished");
  logits = logits.row_range(0, rows);
  PendingDraw draw = begin(draw_rows, rows);
  // Log-probabilities need a token that is not drawn yet, so the rows that they are of are kept.
  // Ops::logprobs takes one number of best tokens for all its rows, hence the groups.
  const std::vector<Tensor> kept =
      keep_rows(logits, columns, edits_any(draw_rows, columns.penalties), draw);
  this->draw(logits, columns);
  check_sampled(logits, columns, draw);
  counts_.count(draw.tokens, columns.penalties);
  for (size_t g = 0; g < kept.size(); ++g) {
    PendingLogprobs& group = draw.logprobs[g];
    group.tokens = turns_[turn_].take(DType::kI32, {std::ssize(group.rows)});
    for (size_t i = 0; i < group.rows.size(); ++i)
      group.tokens.as<int32_t>()[i] = -1 - group.rows[i];
    ops_.load_tokens(group.tokens, draw.tokens);
    look_up(ops_, turns_[turn_], group, kept[g]);
    look_up_guesses(kept[g], draw);
  }
  look_up_best(logits, columns, draw);
  ops_.copy(draw.host_tokens, draw.tokens);
  return draw;
}

PendingDraw Sampler::begin(std::span<const DrawRow> rows, int64_t most) {
  turn_ = (turn_ + 1) % turns_.size();
  turns_[turn_].reset();
  staging_.begin();
  for (const DrawRow& row : rows) {
    Slot& s = slot(row.slot);
    ++(row.depth > 0 ? s.guessed : s.pending);
  }
  return {.rows = {rows.begin(), rows.end()},
          .tokens = ids_.view(DType::kI32, {most}),
          .host_tokens = turns_[turn_].take(DType::kI32, {most})};
}

void Sampler::draw(Tensor logits, const DrawColumns& columns) {
  const int64_t rows = columns.sample.draw.rows();
  if (columns.behind) ops_.take_back(columns.sample.draw, columns.behind, checking_.refused);
  ops_.sample(ids_.view(DType::kI32, {rows}), logits.row_range(0, rows), columns.sample);
}

bool Sampler::draws_plainly(std::span<const DrawRow> rows) const {
  const DraftRule rule = checking_.how.rule;
  if (rule != DraftRule::kTargetMatch && rule != DraftRule::kGreedy) return false;
  return std::ranges::all_of(rows, [this](const DrawRow& row) {
    const Slot& s = slot(row.slot);
    return !edits_logits(s) && !s.penalty.any() && s.state.params().logprobs == kNoLogprobs;
  });
}

SampleOutput Sampler::finish(const PendingDraw& draw) {
  const Token* tokens = draw.host_tokens.as<Token>();
  SampleOutput out{.tokens = {tokens, tokens + draw.rows.size()}};
  out.logprobs.resize(draw.rows.size());
  keep_guesses(draw, out.tokens);
  for (size_t r = 0; r < draw.rows.size(); ++r) count(draw.rows[r], out, out.tokens[r]);
  for (const PendingLogprobs& group : draw.logprobs) {
    std::vector<PositionLogprobs> found = read(group);
    for (size_t i = 0; i < found.size(); ++i) {
      const auto row = static_cast<size_t>(group.rows[i]);
      if (out.tokens[row] != kNoToken) out.logprobs[row] = std::move(found[i]);
    }
  }
  take_guessed(draw, out);
  return out;
}

// Counts the token that a row has drawn into its slot, or makes it kNoToken if the guess before it
// was wrong. Earlier rows must have been counted.
void Sampler::count(const DrawRow& row, const SampleOutput& out, Token& token) {
  Slot& s = slot(row.slot);
  --(row.depth > 0 ? s.guessed : s.pending);
  if (row.instead != kNoToken) token = row.instead;
  if (row.after >= 0 && out.tokens[static_cast<size_t>(row.after)] != row.guess) token = kNoToken;
  if (token != kNoToken) accept(s, token);
}

SampleOutput Sampler::sample(Tensor logits, std::span<const DrawRow> rows) {
  const PendingDraw draw = start(logits, rows);
  ops_.wait(ops_.mark());
  return finish(draw);
}

std::vector<PositionLogprobs> Sampler::prompt_logprobs(Tensor logits, std::span<const Token> next,
                                                       int n) {
  SKIFF_CHECK_EQ(logits.rows(), static_cast<int64_t>(next.size()));
  SKIFF_CHECK_EQ(logits.cols(), vocab_);
  prompts_.reset();
  PendingLogprobs group{.rows = std::vector<int32_t>(next.size()), .top = clamp_top(n)};
  group.tokens = prompts_.take(DType::kI32, {std::ssize(next)});
  std::ranges::copy(next, group.tokens.as<int32_t>());
  look_up(ops_, prompts_, group, logits);
  ops_.wait(ops_.mark());
  return read(group);
}

int Sampler::clamp_top(int n) const { return std::clamp(n, 0, vocab_); }

Sampler::Groups Sampler::logprob_groups(std::span<const DrawRow> rows) const {
  Groups groups;
  for (size_t r = 0; r < rows.size(); ++r) {
    const int n = slot(rows[r].slot).state.params().logprobs;
    if (n >= 0) groups[clamp_top(n)].push_back(static_cast<int32_t>(r));
  }
  return groups;
}

// Copies these rows of logits into raw_, behind the `saved` rows that it holds already.
Tensor Sampler::raw_rows(Tensor logits, const std::vector<int32_t>& rows, int64_t& saved) {
  const size_t row = static_cast<size_t>(vocab_) * sizeof(float);
  const auto n = std::ssize(rows);
  SKIFF_CHECK(static_cast<size_t>(saved + n) * row <= raw_.size(), "{} rows of logits to keep",
              saved + n);
  const Tensor out = raw_.view(DType::kF32, {n, vocab_}, static_cast<size_t>(saved) * row);
  const Tensor index = turns_[turn_].take(DType::kI32, {n});
  fill(index, rows);
  ops_.gather_rows(out, logits, index);
  saved += n;
  return out;
}

bool Sampler::edits_any(std::span<const DrawRow> rows, const Penalties& penalties) {
  return penalties.row.rows() > 0 || std::ranges::any_of(rows, [this](const DrawRow& row) {
           return edits_logits(slot(row.slot));
         });
}

// Biases come first, then penalties, then bans, then masks.
void Sampler::edit(Tensor logits, std::span<const DrawRow> rows, const Penalties& penalties) {
  edits_.begin(logits);
  for (size_t r = 0; r < rows.size(); ++r) {
    Slot& s = slot(rows[r].slot);
    if (s.biases) edits_.add(static_cast<int>(r), *s.biases);
  }
  edits_.apply();
  counts_.penalize(logits, penalties);
  for (size_t r = 0; r < rows.size(); ++r)
    edits_.add(static_cast<int>(r), slot(rows[r].slot).bans.list());
  edits_.apply();
  mask(logits, rows);
}

// The masks are made here, on the host, while the device computes the logits.
void Sampler::mask(Tensor logits, std::span<const DrawRow> rows) {
  std::vector<int32_t> masked;
  for (size_t r = 0; r < rows.size(); ++r)
    if (slot(rows[r].slot).follower) masked.push_back(static_cast<int32_t>(r));
  if (masked.empty()) return;
  const auto words = (static_cast<int64_t>(vocab_) + 31) / 32;
  const Tensor index = turns_[turn_].take(DType::kI32, {std::ssize(masked)});
  const Tensor allowed = turns_[turn_].take(DType::kI32, {std::ssize(masked), words});
  fill(index, masked);
  for (size_t i = 0; i < masked.size(); ++i) {
    auto* row = reinterpret_cast<uint32_t*>(allowed.row<int32_t>(static_cast<int64_t>(i)));
    const DrawRow& draw = rows[static_cast<size_t>(masked[i])];
    slot(draw.slot).follower->fill({row, static_cast<size_t>(words)});
  }
  ops_.mask_logits(logits, index, allowed);
}

DrawColumns Sampler::columns(Upload& upload, std::span<const DrawRow> rows) const {
  const SampleBatch sample = sample_columns(upload, rows);
  return {.sample = sample,
          .penalties = penalty_columns(upload, rows),
          .plain = plain_columns(upload, rows, sample),
          .checks = check_columns(upload, rows),
          .reported = reported_columns(upload, rows),
          .behind = behind_column(upload, rows)};
}

Tensor Sampler::behind_column(Upload& upload, std::span<const DrawRow> rows) const {
  const auto waits = [this](const DrawRow& row) { return slot(row.slot).guessed > 0; };
  if (!std::ranges::any_of(rows, waits)) return {};
  SKIFF_CHECK(checking_.refused, "a slot has guesses in a draw that is pending");
  const Tensor out = upload.take(DType::kI32, {std::ssize(rows)});
  for (size_t r = 0; r < rows.size(); ++r)
    out.as<int32_t>()[r] = waits(rows[r]) ? rows[r].slot : -1;
  return upload.there(out);
}

DrawColumns Sampler::whole_columns(Upload& upload, std::span<const DrawRow> rows,
                                   int64_t most) const {
  const DrawColumns out = take_greedy(upload, most);
  fill_columns(out.sample, rows);
  for (size_t r = 0; r < rows.size(); ++r)
    if (slot(rows[r].slot).guessed > 0) out.behind.as<int32_t>()[r] = rows[r].slot;
  return there(upload, out);
}

DrawColumns Sampler::greedy_columns(Upload& upload, int64_t most) {
  return there(upload, take_greedy(upload, most));
}

Penalties Sampler::penalty_columns(Upload& upload, std::span<const DrawRow> rows) const {
  const auto n = std::ranges::count_if(
      rows, [this](const DrawRow& row) { return slot(row.slot).penalty.any(); });
  Penalties out{.row = upload.take(DType::kI32, {n}),
                .slot = upload.take(DType::kI32, {n}),
                .divide = upload.take(DType::kF32, {n}),
                .once = upload.take(DType::kF32, {n}),
                .each = upload.take(DType::kF32, {n})};
  int64_t i = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Penalty& penalty = slot(rows[r].slot).penalty;
    if (!penalty.any()) continue;
    SKIFF_CHECK_EQ(rows[r].depth, 0);
    out.row.as<int32_t>()[i] = static_cast<int32_t>(r);
    out.slot.as<int32_t>()[i] = rows[r].slot;
    out.divide.as<float>()[i] = penalty.divide;
    out.once.as<float>()[i] = penalty.once;
    out.each.as<float>()[i] = penalty.each;
    ++i;
  }
  for (Tensor* t : {&out.row, &out.slot, &out.divide, &out.once, &out.each}) *t = upload.there(*t);
  return out;
}

SampleBatch Sampler::sample_columns(Upload& upload, std::span<const DrawRow> rows) const {
  const SampleBatch batch = take_columns(upload, std::ssize(rows));
  fill_columns(batch, rows);
  return there(upload, batch);
}

void Sampler::fill_columns(const SampleBatch& columns, std::span<const DrawRow> rows) const {
  const bool greedy = checking_.how.rule == DraftRule::kGreedy;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Slot& s = slot(rows[r].slot);
    const SamplingParams& params = s.state.params();
    columns.temperature.as<float>()[r] = greedy ? 0 : params.temperature;
    columns.top_p.as<float>()[r] = params.top_p;
    columns.min_p.as<float>()[r] = params.min_p;
    columns.top_k.as<int32_t>()[r] = params.top_k;
    columns.seed.as<int64_t>()[r] = static_cast<int64_t>(params.seed);
    columns.draw.as<int64_t>()[r] = s.state.output_count() + s.pending + s.guessed + rows[r].depth;
  }
}

}  // namespace skiff::sample
