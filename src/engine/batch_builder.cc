#include "engine/batch_builder.h"

#include <algorithm>
#include <utility>

#include "engine/forced_drafts.h"

namespace skiff::engine {
namespace {

int pages_for(int positions, int block_size) { return (positions + block_size - 1) / block_size; }

size_t upload_bytes(const sched::Limits& limits, int max_pages) {
  const auto rows = static_cast<size_t>(limits.max_rows),
             seqs = static_cast<size_t>(limits.max_seqs),
             outs = static_cast<size_t>(limits.max_logit_rows);
  const size_t numbers = 2 * rows + 7 * seqs + 1 + outs + seqs * static_cast<size_t>(max_pages);
  return numbers * sizeof(int32_t) + 20 * kTensorAlign +
         sample::Sampler::column_bytes(limits.max_logit_rows);
}

}  // namespace

BatchBuilder::BatchBuilder(const sched::Limits& limits, int block_size, Captures captures, Ops& ops,
                           const Chaining& chaining)
    : block_size_(block_size),
      max_pages_(pages_for(limits.max_context, block_size)),
      max_rows_(limits.max_rows),
      max_logit_rows_(limits.max_logit_rows),
      max_seqs_(limits.max_seqs),
      captures_(std::move(captures)),
      chaining_(chaining),
      upload_(ops, upload_bytes(limits, max_pages_)) {
  const size_t table = static_cast<size_t>(limits.max_seqs) * static_cast<size_t>(max_pages_);
  if (ops.device() != Device{}) pages_ = Buffer(ops.device(), table * sizeof(int32_t));
}

// On the host both rounds of the upload count; on a device, one round and the page table.
size_t BatchBuilder::memory_bytes(const sched::Limits& limits, int block_size, Device device) {
  const int max_pages = pages_for(limits.max_context, block_size);
  const size_t upload = upload_bytes(limits, max_pages);
  if (device == Device{}) return 2 * upload;
  return upload + static_cast<size_t>(limits.max_seqs) * static_cast<size_t>(max_pages) * 4;
}

// Rounds up to the next captured size; past the last one a step is not padded.
int BatchBuilder::captured_seqs(int seqs, int rows_per_seq) const {
  if (rows_per_seq < 1 || rows_per_seq > 1 + captures_.drafts) return 0;
  const auto size = std::ranges::lower_bound(captures_.sizes, seqs);
  if (size == captures_.sizes.end()) return 0;
  const bool most = rows_per_seq == 1 || rows_per_seq == 1 + captures_.drafts;
  if (!most && *size > 1) return 0;
  const int logit_rows = captures_.ragged ? *size : *size * rows_per_seq;
  return *size * rows_per_seq <= max_rows_ && logit_rows <= max_logit_rows_ ? *size : 0;
}

std::vector<int> BatchBuilder::recorded_sizes(int rows_per_seq) const {
  std::vector<int> out;
  for (const int size : captures_.sizes)
    if (captured_seqs(size, rows_per_seq) == size) out.push_back(size);
  return out;
}

// Returns whether all sequences decode, some with fewer drafts than a recorded step has, and at
// most a fourth of its rows would be padding.
bool BatchBuilder::nearly_fills(const RoundPart& part) const {
  const int most = 1 + captures_.drafts, recorded = captured_seqs(part.seqs, most);
  const bool decodes = part.most_per_seq > 0 && part.most_per_seq <= most;
  return recorded > 0 && decodes && int64_t{4} * part.rows >= int64_t{3} * recorded * most;
}

// The rows of each sequence of the recorded step that a part may be padded to; 0: of none.
int BatchBuilder::padded_rows(const RoundPart& part) const {
  if (part.rows_per_seq > 0 || !nearly_fills(part)) return part.rows_per_seq;
  return 1 + captures_.drafts;
}

// The same of a plan.
int BatchBuilder::padded_rows(const StepPlan& plan) const {
  if (!captures_.ragged) return padded_rows(part_of(plan));
  int most = 1;
  for (const Span& span : plan.spans) most = std::max(most, span.count);
  if (most > 1 + captures_.drafts) return 0;
  return most == 1 ? 1 : 1 + captures_.drafts;
}

// Returns the number of sequences of the recorded step of exactly so many rows; 0 if there is none.
int BatchBuilder::recorded_seqs(int rows, int rows_per_seq) const {
  const int seqs = rows_per_seq > 0 ? rows / rows_per_seq : 0;
  return seqs * rows_per_seq == rows && captured_seqs(seqs, rows_per_seq) == seqs ? seqs : 0;
}

// Returns the least number of rows for which there is a recorded step that fits, for each part; 0
// if there is none. Whatever is recorded fits a part without rows.
int BatchBuilder::captured_rows(std::span<const RoundPart> parts) const {
  const auto first = std::ranges::find_if(parts, [](const RoundPart& p) { return p.rows > 0; });
  const int rows_per_seq = first == parts.end() ? 1 : padded_rows(*first);
  for (const int size : captures_.sizes) {
    const int rows = size * rows_per_seq;
    const auto fits = [&](const RoundPart& part) {
      return part.rows == 0 || recorded_seqs(rows, padded_rows(part)) >= part.seqs;
    };
    if (recorded_seqs(rows, rows_per_seq) > 0 && std::ranges::all_of(parts, fits)) return rows;
  }
  return 0;
}

// Chooses how many sequences and rows the step has with its padding.
void BatchBuilder::choose_shape(const RoundPart& own, std::span<const RoundPart> round,
                                StepFrame& frame) const {
  RaggedBatch& batch = frame.batch;
  const int captured = captured_rows(round.empty() ? std::span(&own, 1) : round);
  if (captured > 0) {
    int rows_per_seq = own.rows > 0 ? own.rows_per_seq : 1;
    while (recorded_seqs(captured, rows_per_seq) == 0) ++rows_per_seq;
    batch.num_tokens = captured;
    batch.num_seqs = captured / rows_per_seq;
    frame.key = {
        .rows = captured, .rows_per_seq = rows_per_seq, .variant = captures_.ragged ? 1 : 0};
  } else {
    const int least = round.empty() ? 0 : 1;
    batch.num_tokens = std::max(own.rows, least);
    batch.num_seqs = std::max(own.seqs, least);
  }
  if (round.empty()) return;
  comm::RowsOfRanks& all = frame.shared_rows.emplace();
  for (const RoundPart& part : round) {
    const int64_t rows = captured > 0 ? captured : std::max(part.rows, 1);
    all.most = std::max(all.most, rows);
    all.sum += rows;
  }
}

void BatchBuilder::build(const StepPlan& plan, const sample::Sampler* sampler, StepFrame& frame,
                         std::span<const RoundPart> round) {
  frame.clear();
  RaggedBatch& batch = frame.batch;
  RoundPart own = part_of(plan);
  own.rows_per_seq = padded_rows(plan);
  choose_shape(own, round, frame);
  upload_.begin();
  add_rows(plan, batch);
  choose_logit_rows(plan, sampler, frame);
  batch.out_rows = upload_.take(DType::kI32, {std::ssize(out_rows_)});
  std::ranges::copy(out_rows_, batch.out_rows.as<int32_t>());
  const bool padded = frame.key && (plan.chained || captures_.ragged);
  const size_t seqs = padded ? static_cast<size_t>(batch.num_seqs) : frame.rows.num_sampled;
  frame.whole =
      padded && plan.chained && (sampler == nullptr || sampler->draws_plainly(frame.rows.drawn));
  frame.slots = sampled_slots(frame.rows, seqs);
  batch.moved_back = moved_back(plan, batch.num_seqs, padded && plan.chained);
  if (plan.chained) add_verdicts(plan, frame.slots.rows(), frame);
  frame.columns = columns(sampler, frame);
  const Arrival numbers = upload_.arrival();
  add_pages(plan, batch);
  for (Tensor* t : {&batch.tokens, &batch.positions, &batch.row_start, &batch.kv_len,
                    &batch.out_rows, &batch.moved_back.slots, &frame.slots, &frame.verdicts.drafts,
                    &frame.verdicts.draws, &frame.verdicts.kept})
    if (*t) *t = upload_.there(*t);
  frame.verdicts.slots = frame.slots;
  frame.verdicts.row_start = batch.row_start;
  frame.verdicts.tokens = batch.tokens;
  frame.verdicts.moved_slots = batch.moved_back.slots;
  if (pages_.size() == 0) return;
  const Tensor table = pages_.view(DType::kI32, {batch.num_seqs, max_pages_});
  frame.arrivals = {numbers, Arrival{table.col_range(0, batch.pages.cols()), batch.pages}};
  batch.pages = table;
}

void BatchBuilder::add_rows(const StepPlan& plan, RaggedBatch& batch) {
  batch.tokens = upload_.take(DType::kI32, {batch.num_tokens});
  batch.positions = upload_.take(DType::kI32, {batch.num_tokens});
  batch.row_start = upload_.take(DType::kI32, {batch.num_seqs + 1});
  batch.kv_len = upload_.take(DType::kI32, {batch.num_seqs});
  auto *tokens = batch.tokens.as<int32_t>(), *positions = batch.positions.as<int32_t>(),
       *row_start = batch.row_start.as<int32_t>(), *kv_len = batch.kv_len.as<int32_t>();
  batch.host_row_start = {row_start, static_cast<size_t>(batch.num_seqs) + 1};
  batch.host_kv_len = {kv_len, static_cast<size_t>(batch.num_seqs)};
  int row = 0;
  for (const Span& span : plan.spans) {
    *row_start++ = row;
    *kv_len++ = span.begin + span.count;
    for (int i = 0; i < span.count; ++i, ++row) {
      tokens[row] = code_of(plan.tokens[static_cast<size_t>(row)], span, i);
      positions[row] = span.begin + i;
    }
    batch.max_rows = std::max(batch.max_rows, span.count);
    batch.max_kv = std::max(batch.max_kv, span.begin + span.count);
  }
  // Padding rows belong to no sequence, and padding sequences have no rows.
  std::fill(tokens + row, tokens + batch.num_tokens, 0);
  std::fill(positions + row, positions + batch.num_tokens, 0);
  const int padding = batch.num_seqs - static_cast<int>(plan.spans.size());
  std::fill_n(row_start, padding + 1, row);
  std::fill_n(kv_len, padding, 0);
}

Token BatchBuilder::code_of(Token token, const Span& span, int row) const {
  if (token != kOnDevice) return token;
  const int part = std::max(0, row - (span.count - span.draft) + 1);
  SKIFF_CHECK(part <= chaining_.drafts, "draft {} is not known", part);
  return -1 - (part * max_seqs_ + span.slot);
}

// Padding sequences do not move.
MovedBack BatchBuilder::moved_back(const StepPlan& plan, int num_seqs, bool always) {
  if (!always && std::ranges::none_of(plan.spans, &Span::after_drafts)) return {};
  SKIFF_CHECK(chaining_.drafts > 0);
  const Tensor slots = upload_.take(DType::kI32, {num_seqs});
  std::fill_n(slots.as<int32_t>(), num_seqs, -1);
  for (size_t s = 0; s < plan.spans.size(); ++s)
    if (plan.spans[s].after_drafts) slots.as<int32_t>()[s] = plan.spans[s].slot;
  return {.slots = slots, .refused = chaining_.refused};
}

// All spans sample, and their drafts are checked in the first draw. Places behind them have none.
void BatchBuilder::add_verdicts(const StepPlan& plan, int64_t n, StepFrame& frame) {
  SKIFF_CHECK(frame.rows.by_depth.empty() && frame.rows.num_sampled == plan.spans.size());
  DraftVerdicts& out = frame.verdicts;
  for (Tensor* t : {&out.drafts, &out.draws, &out.kept}) {
    *t = upload_.take(DType::kI32, {n});
    std::fill_n(t->as<int32_t>(), n, 0);
  }
  auto next = static_cast<int32_t>(plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    out.drafts.as<int32_t>()[i] = span.draft;
    out.draws.as<int32_t>()[i] = std::exchange(next, next + span.draft);
    out.kept.as<int32_t>()[i] =
        chaining_.forced_rate ? forced_kept(*chaining_.forced_rate, span, plan.step) : -1;
  }
}

sample::DrawColumns BatchBuilder::columns(const sample::Sampler* sampler, const StepFrame& frame) {
  if (frame.whole && sampler == nullptr)
    return sample::Sampler::greedy_columns(upload_, frame.batch.num_tokens);
  if (sampler == nullptr) return {};
  if (!frame.whole) return sampler->columns(upload_, frame.rows.drawn);
  return sampler->whole_columns(upload_, frame.rows.drawn, frame.batch.num_tokens);
}

void BatchBuilder::add_pages(const StepPlan& plan, RaggedBatch& batch) {
  const int width = std::max(1, pages_for(batch.max_kv, block_size_));
  batch.pages = upload_.take(DType::kI32, {batch.num_seqs, width});
  auto* to = batch.pages.as<int32_t>();
  for (size_t s = 0; s < plan.spans.size(); ++s, to += width) {
    const int used = pages_for(batch.host_kv_len[s], block_size_);
    const BlockId* from = plan.pages.data() + plan.page_start[s];
    std::fill(std::copy(from, from + used, to), to + width, 0);
  }
  std::fill(to, batch.pages.as<int32_t>() + batch.pages.elements(), 0);
}

// Appends `count` rows of the step to those whose logits are computed; returns the first one's row
// of logits.
int BatchBuilder::want(int row, int count) {
  const auto begin = static_cast<int>(out_rows_.size());
  SKIFF_CHECK(begin + count <= max_logit_rows_, "{} rows of logits", begin + count);
  for (int i = 0; i < count; ++i) out_rows_.push_back(row + i);
  return begin;
}

void BatchBuilder::choose_logit_rows(const StepPlan& plan, const sample::Sampler* sampler,
                                     StepFrame& frame) {
  out_rows_.clear();
  LogitRows& rows = frame.rows;
  const std::span<const int32_t> row_start = frame.batch.host_row_start;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    if (!span.sample) continue;
    want(row_start[i + 1] - 1 - span.draft, 1);
    rows.drawn.push_back({.slot = span.slot});
    rows.drawn_by.push_back(i);
  }
  rows.num_sampled = rows.drawn.size();
  choose_drafts(plan, sampler, frame);
  for (LogitRows::Range& range : rows.by_depth) range.begin = want(range.row, range.count);
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    if (span.prompt_logprobs == kNoLogprobs) continue;
    const int count = span.count - span.sample;  // the row that samples has no known next token
    rows.prompts.push_back({i, row_start[i], want(row_start[i], count), count});
  }
  rows.pools = static_cast<int>(out_rows_.size());
  for (size_t i = 0; i < plan.spans.size(); ++i)
    if (plan.spans[i].pool_logits) want(row_start[i + 1] - 1, 1);
  // Padding has logits too: a recorded step always has as many rows of them.
  const int padding = row_start.back();
  if (frame.key && captures_.ragged)
    out_rows_.resize(static_cast<size_t>(frame.batch.num_seqs), 0);
  else if (frame.key)
    want(padding, frame.batch.num_tokens - padding);
}

void BatchBuilder::choose_drafts(const StepPlan& plan, const sample::Sampler* sampler,
                                 StepFrame& frame) {
  LogitRows& rows = frame.rows;
  int raw = sampler ? sampler->raw_room(rows.drawn) : 0;
  for (size_t first = 0; first < rows.num_sampled; ++first) {
    const size_t i = rows.drawn_by[first];
    const Span& span = plan.spans[i];
    if (span.draft == 0) continue;
    const int row = frame.batch.host_row_start[i + 1] - span.draft;
    if (sampler && !sampler->draws_at_once(span.slot, span.draft, raw)) {
      rows.by_depth.push_back({.span = i, .row = row, .count = span.draft});
      continue;
    }
    auto after = static_cast<int>(first);
    for (int d = 0; d < span.draft; ++d) {
      const int at = row + d;
      rows.drawn.push_back({.slot = span.slot,
                            .depth = d + 1,
                            .after = after,
                            .guess = plan.tokens[static_cast<size_t>(at)]});
      rows.drawn_by.push_back(i);
      after = want(at, 1);
    }
  }
}

Tensor BatchBuilder::sampled_slots(const LogitRows& rows, size_t n) {
  const Tensor slots = upload_.take(DType::kI32, {static_cast<int64_t>(n)});
  auto* const to = slots.as<int32_t>();
  for (size_t i = 0; i < rows.num_sampled; ++i) to[i] = rows.drawn[i].slot;
  std::fill(to + rows.num_sampled, to + n, -1);
  return slots;
}

}  // namespace skiff::engine
