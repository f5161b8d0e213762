#include "engine/batch_builder.h"

#include <algorithm>

namespace skiff {
namespace {

int pages_for(int positions, int block_size) { return (positions + block_size - 1) / block_size; }

size_t upload_bytes(const Limits& limits, int max_pages) {
  const auto rows = static_cast<size_t>(limits.max_rows),
             seqs = static_cast<size_t>(limits.max_seqs),
             outs = static_cast<size_t>(limits.max_logit_rows);
  const size_t numbers = 2 * rows + 3 * seqs + 1 + outs + seqs * static_cast<size_t>(max_pages);
  return numbers * sizeof(int32_t) + 16 * kTensorAlign;
}

void fill(Tensor to, const std::vector<int32_t>& from) {
  std::ranges::copy(from, to.as<int32_t>());
}

}  // namespace

BatchBuilder::BatchBuilder(const Limits& limits, int block_size, std::vector<int> capture_sizes,
                           Ops& ops, size_t more)
    : block_size_(block_size),
      max_pages_(pages_for(limits.max_context, block_size)),
      max_logit_rows_(static_cast<size_t>(limits.max_logit_rows)),
      capture_sizes_(std::move(capture_sizes)),
      upload_(ops, upload_bytes(limits, max_pages_) + more) {
  const size_t table = static_cast<size_t>(limits.max_seqs) * static_cast<size_t>(max_pages_);
  if (ops.device() != Device{}) pages_ = Buffer(ops.device(), table * sizeof(int32_t));
}

// Two rounds of the upload on the host; on a device one of them, and the page table.
size_t BatchBuilder::memory_bytes(const Limits& limits, int block_size, Device device,
                                  size_t more) {
  const int max_pages = pages_for(limits.max_context, block_size);
  const size_t upload = upload_bytes(limits, max_pages) + more;
  if (device == Device{}) return 2 * upload;
  return upload + static_cast<size_t>(limits.max_seqs) * static_cast<size_t>(max_pages) * 4;
}

// Rounds up to the next captured batch size; past the last one a step is not padded.
int BatchBuilder::padded(int rows) const {
  const auto size = std::ranges::lower_bound(capture_sizes_, rows);
  return size == capture_sizes_.end() ? rows : *size;
}

const BuiltStep& BatchBuilder::build(const StepPlan& plan,
                                     const std::function<void(Upload&)>& add) {
  step_ = {.batch = {}, .arrivals = {}, .slots = {}, .decode_only = plan.only_decodes()};
  RaggedBatch& batch = step_.batch;
  const auto spans = static_cast<int>(plan.spans.size()),
             rows = static_cast<int>(plan.tokens.size());
  batch.num_seqs = step_.decode_only ? padded(spans) : spans;
  batch.num_tokens = rows + (batch.num_seqs - spans);
  upload_.begin();
  add_rows(plan);
  choose_logit_rows(plan);
  batch.out_rows = upload_.take(DType::kI32, {std::ssize(out_rows_)});
  fill(batch.out_rows, out_rows_);
  step_.slots = upload_.take(DType::kI32, {std::ssize(logit_rows_.slots)});
  fill(step_.slots, logit_rows_.slots);
  if (add) add(upload_);
  const Arrival numbers = upload_.arrival();
  add_pages(plan);
  for (Tensor* t : {&batch.tokens, &batch.positions, &batch.row_start, &batch.kv_len,
                    &batch.out_rows, &step_.slots})
    *t = upload_.there(*t);
  if (pages_.size() == 0) return step_;
  const Tensor table = pages_.view(DType::kI32, {batch.num_seqs, max_pages_});
  step_.arrivals = {numbers, Arrival{table.col_range(0, batch.pages.cols()), batch.pages}};
  batch.pages = table;
  return step_;
}

void BatchBuilder::add_rows(const StepPlan& plan) {
  RaggedBatch& batch = step_.batch;
  batch.tokens = upload_.take(DType::kI32, {batch.num_tokens});
  batch.positions = upload_.take(DType::kI32, {batch.num_tokens});
  auto *tokens = batch.tokens.as<int32_t>(), *positions = batch.positions.as<int32_t>();
  row_start_.clear();
  kv_len_.clear();
  int row = 0;
  for (const Span& span : plan.spans) {
    row_start_.push_back(row);
    kv_len_.push_back(span.begin + span.count);
    for (int i = 0; i < span.count; ++i, ++row) {
      const Token token = plan.tokens[static_cast<size_t>(row)];
      tokens[row] = token == kOnDevice ? -1 - span.slot : token;
      positions[row] = span.begin + i;
    }
    batch.max_rows = std::max(batch.max_rows, span.count);
    batch.max_kv = std::max(batch.max_kv, span.begin + span.count);
  }
  std::fill(tokens + row, tokens + batch.num_tokens, 0);
  std::fill(positions + row, positions + batch.num_tokens, 0);
  row_start_.resize(static_cast<size_t>(batch.num_seqs) + 1, row);
  kv_len_.resize(static_cast<size_t>(batch.num_seqs), 0);
  batch.row_start = upload_.take(DType::kI32, {std::ssize(row_start_)});
  batch.kv_len = upload_.take(DType::kI32, {std::ssize(kv_len_)});
  fill(batch.row_start, row_start_);
  fill(batch.kv_len, kv_len_);
  batch.host_row_start = row_start_;
  batch.host_kv_len = kv_len_;
}

void BatchBuilder::add_pages(const StepPlan& plan) {
  RaggedBatch& batch = step_.batch;
  const int width = pages_for(batch.max_kv, block_size_);
  batch.pages = upload_.take(DType::kI32, {batch.num_seqs, width});
  auto* to = batch.pages.as<int32_t>();
  for (size_t s = 0; s < plan.spans.size(); ++s, to += width) {
    const int used = pages_for(kv_len_[s], block_size_);
    const BlockId* from = plan.pages.data() + plan.page_start[s];
    std::fill(std::copy(from, from + used, to), to + width, 0);
  }
  std::fill(to, batch.pages.as<int32_t>() + batch.pages.elements(), 0);
}

LogitRows::Range BatchBuilder::take_rows(size_t span, int row, int count) {
  const LogitRows::Range range{span, row, static_cast<int>(out_rows_.size()), count};
  for (int i = 0; i < count; ++i) out_rows_.push_back(row + i);
  SKIFF_CHECK(out_rows_.size() <= max_logit_rows_);
  return range;
}

void BatchBuilder::choose_logit_rows(const StepPlan& plan) {
  out_rows_.clear();
  logit_rows_ = {};
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    if (!span.sample) continue;
    take_rows(i, row_start_[i + 1] - 1 - span.draft, 1);
    logit_rows_.sampled.push_back(i);
    logit_rows_.slots.push_back(span.slot);
  }
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const int draft = plan.spans[i].draft;
    if (draft > 0) logit_rows_.drafts.push_back(take_rows(i, row_start_[i + 1] - draft, draft));
  }
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    if (span.prompt_logprobs == kNoLogprobs) continue;
    const int count = span.count - span.sample;  // the row that samples has no known next token
    logit_rows_.prompts.push_back(take_rows(i, row_start_[i], count));
  }
  // Padding has logits too: a captured step always has as many rows of them as sequences.
  if (!step_.decode_only) return;
  for (int row = row_start_.back(); row < step_.batch.num_tokens; ++row) out_rows_.push_back(row);
}

}  // namespace skiff
