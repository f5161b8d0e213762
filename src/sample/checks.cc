#include <algorithm>

#include "sample/sampler.h"
#include "sample/verdict.h"

namespace skiff::sample {
namespace {

// The draws of a verdict and of the token that replaces a guess are independent of the row's own.
constexpr uint64_t kKeep = 0x6b6565705f647261, kInstead = 0x696e73746561645f;

float uniform(uint64_t seed, int64_t draw) {
  return static_cast<float>(
             static_cast<int64_t>(uniform_draw(seed, static_cast<uint64_t>(draw)) * 0x1p24)) *
         0x1p-24f;
}

// Returns the guess behind each row, or -1.
std::vector<Token> guesses_behind(std::span<const DrawRow> rows) {
  std::vector<Token> out(rows.size(), kNoToken);
  for (const DrawRow& row : rows)
    if (row.after >= 0) out[static_cast<size_t>(row.after)] = row.guess;
  return out;
}

}  // namespace

bool Sampler::looks_at_best(std::span<const DrawRow> rows) const {
  const DraftRule rule = checking_.how.rule;
  return (rule == DraftRule::kTopP || rule == DraftRule::kRelaxed) &&
         std::ranges::any_of(rows, [](const DrawRow& row) { return row.after >= 0; });
}

// Probabilities are those of the temperature alone; a greedy row has those of temperature 1.
SampleBatch Sampler::plain_columns(Upload& upload, std::span<const DrawRow> rows,
                                   const SampleBatch& sample) const {
  const auto n = looks_at_best(rows) ? std::ssize(rows) : 0;
  SampleBatch out{.temperature = upload.take(DType::kF32, {n}),
                  .top_p = upload.take(DType::kF32, {n}),
                  .min_p = upload.take(DType::kF32, {n}),
                  .top_k = upload.take(DType::kI32, {n}),
                  .seed = sample.seed,
                  .draw = sample.draw};
  for (int64_t r = 0; r < n; ++r) {
    const float t = slot(rows[static_cast<size_t>(r)].slot).state.params().temperature;
    out.temperature.as<float>()[r] = t > 0 ? t : 1;
    out.top_p.as<float>()[r] = 1;
    out.min_p.as<float>()[r] = 0;
    out.top_k.as<int32_t>()[r] = 0;
  }
  for (Tensor* t : {&out.temperature, &out.top_p, &out.min_p, &out.top_k}) *t = upload.there(*t);
  return out;
}

DraftChecks Sampler::check_columns(Upload& upload, std::span<const DrawRow> rows) const {
  const int most = checking_.how.rule == DraftRule::kRejection ? checking_.drafts_per_slot : 0;
  const auto sampled = [most](const DrawRow& row) { return row.depth > 0 && row.depth <= most; };
  const auto n = std::ranges::count_if(rows, sampled);
  DraftChecks out{.row = upload.take(DType::kI32, {n}),
                  .draft_row = upload.take(DType::kI32, {n}),
                  .token = upload.take(DType::kI32, {n}),
                  .keep = upload.take(DType::kF32, {n}),
                  .instead = upload.take(DType::kF32, {n})};
  int64_t i = 0;
  for (const DrawRow& row : rows) {
    if (!sampled(row)) continue;
    const Slot& s = slot(row.slot);
    const uint64_t seed = s.state.params().seed;
    const int64_t draw = s.state.output_count() + s.pending + row.depth - 1;
    out.row.as<int32_t>()[i] = row.after;
    out.draft_row.as<int32_t>()[i] = (row.depth - 1) * static_cast<int>(slots_.size()) + row.slot;
    out.token.as<int32_t>()[i] = row.guess;
    out.keep.as<float>()[i] = uniform(seed ^ kKeep, draw);
    out.instead.as<float>()[i] = uniform(seed ^ kInstead, draw);
    ++i;
  }
  for (Tensor* t : {&out.row, &out.draft_row, &out.token, &out.keep, &out.instead})
    *t = upload.there(*t);
  return out;
}

void Sampler::check_sampled(Tensor logits, const DrawColumns& columns, const PendingDraw& draw) {
  if (columns.checks.row.rows() == 0) return;
  ops_.draw_logprobs(logits, columns.sample);
  ops_.check_drafts(draw.tokens, logits, checking_.draft_probs, columns.checks);
}

// Log-probabilities are of the logits before the rules, so they are looked up apart.
void Sampler::look_up_guesses(Tensor raw, PendingDraw& draw) {
  if (!looks_at_best(draw.rows)) return;
  const std::vector<Token> behind = guesses_behind(draw.rows);
  const PendingLogprobs& drawn = draw.logprobs[draw.guessed.size()];
  const std::vector<int32_t>& rows = drawn.rows;
  PendingLogprobs& group = draw.guessed.emplace_back(
      PendingLogprobs{.rows = rows, .logits = drawn.logits, .temperature = drawn.temperature});
  group.tokens = turns_[turn_].take(DType::kI32, {std::ssize(rows)});
  for (size_t i = 0; i < rows.size(); ++i)
    group.tokens.as<int32_t>()[i] = std::max(behind[static_cast<size_t>(rows[i])], 0);
  look_up(ops_, turns_[turn_], group, raw);
}

void Sampler::look_up_best(Tensor logits, const DrawColumns& columns, PendingDraw& draw) {
  if (!looks_at_best(draw.rows)) return;
  const DraftCheck& how = checking_.how;
  const int most = how.rule == DraftRule::kTopP ? how.candidates : how.best;
  PendingLogprobs& best = draw.best.emplace(PendingLogprobs{.top = clamp_top(most)});
  best.tokens = turns_[turn_].take(DType::kI32, {logits.rows()});
  std::fill_n(best.tokens.as<int32_t>(), logits.rows(), 0);
  ops_.draw_logprobs(logits, columns.plain);
  look_up(ops_, turns_[turn_], best, logits);
}

// Replaces what rows have drawn by the guesses behind them that are kept all the same.
void Sampler::keep_guesses(const PendingDraw& draw, std::vector<Token>& tokens) const {
  if (!draw.best) return;
  const auto top = static_cast<size_t>(draw.best->top);
  for (size_t begin = 0; begin < draw.rows.size();) {
    std::vector<CheckedRow> run;
    std::vector<size_t> rows;
    size_t end = begin;
    for (; end < draw.rows.size() && draw.rows[end].depth == static_cast<int>(run.size()) + 1;
         ++end) {
      rows.push_back(static_cast<size_t>(draw.rows[end].after));
      const auto row = static_cast<int64_t>(rows.back());
      run.push_back({.drawn = tokens[rows.back()],
                     .draft = draw.rows[end].guess,
                     .best = {draw.best->top_ids.row<int32_t>(row), top},
                     .best_logprobs = {draw.best->top_logprobs.row<float>(row), top}});
    }
    const Slot& s = slot(draw.rows[begin].slot);
    const SamplingParams& params = s.state.params();
    const int kept = drafts_kept(
        checking_.how,
        {.temperature = params.temperature, .top_p = params.top_p, .thinking = s.thinking}, run);
    for (size_t i = 0; i < static_cast<size_t>(kept); ++i) tokens[rows[i]] = run[i].draft;
    begin = std::max(end, begin + 1);
  }
}

void Sampler::take_guessed(const PendingDraw& draw, SampleOutput& out) {
  for (const PendingLogprobs& group : draw.guessed) {
    const std::vector<PositionLogprobs> found = read(group);
    for (size_t i = 0; i < found.size(); ++i) {
      const auto row = static_cast<size_t>(group.rows[i]);
      std::optional<PositionLogprobs>& logprobs = out.logprobs[row];
      if (!logprobs || out.tokens[row] != found[i].chosen.token) continue;
      logprobs->chosen = found[i].chosen;
      logprobs->rank = found[i].rank;
    }
  }
}

}  // namespace skiff::sample
