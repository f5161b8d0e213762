#include "engine/batch_builder.h"

#include <algorithm>

namespace skiff {
namespace {

int32_t* at(std::vector<int32_t>& v, int i) { return v.data() + i; }

}  // namespace

BatchBuilder::BatchBuilder(const Limits& limits, int block_size) : block_size_(block_size) {
  const auto rows = static_cast<size_t>(limits.max_rows),
             seqs = static_cast<size_t>(limits.max_seqs);
  const auto pages = static_cast<size_t>((limits.max_context + block_size - 1) / block_size);
  tokens_.resize(rows);
  positions_.resize(rows);
  row_start_.resize(seqs + 1);
  kv_len_.resize(seqs);
  pages_.resize(seqs * pages);
  out_rows_.reserve(static_cast<size_t>(limits.max_logit_rows));
}

const RaggedBatch& BatchBuilder::build(const StepPlan& plan, std::span<const Token> last) {
  SKIFF_CHECK(plan.tokens.size() <= tokens_.size() && plan.spans.size() <= kv_len_.size());
  batch_ = {};
  batch_.num_seqs = static_cast<int>(plan.spans.size());
  add_rows(plan, last);
  add_pages(plan);
  choose_logit_rows(plan);
  const int seqs = batch_.num_seqs, rows = batch_.num_tokens;
  batch_.tokens = host_tensor(tokens_.data(), DType::kI32, {rows});
  batch_.positions = host_tensor(positions_.data(), DType::kI32, {rows});
  batch_.row_start = host_tensor(row_start_.data(), DType::kI32, {seqs + 1});
  batch_.kv_len = host_tensor(kv_len_.data(), DType::kI32, {seqs});
  batch_.out_rows = host_tensor(out_rows_.data(), DType::kI32, {std::ssize(out_rows_)});
  return batch_;
}

void BatchBuilder::add_rows(const StepPlan& plan, std::span<const Token> last) {
  int row = 0;
  for (int s = 0; s < batch_.num_seqs; ++s) {
    const Span& span = plan.spans[static_cast<size_t>(s)];
    *at(row_start_, s) = row;
    *at(kv_len_, s) = span.begin + span.count;
    for (int i = 0; i < span.count; ++i, ++row) {
      const Token token = plan.tokens[static_cast<size_t>(row)];
      *at(tokens_, row) = token == kOnDevice ? last[static_cast<size_t>(span.slot)] : token;
      *at(positions_, row) = span.begin + i;
    }
    batch_.max_rows = std::max(batch_.max_rows, span.count);
    batch_.max_kv = std::max(batch_.max_kv, span.begin + span.count);
  }
  *at(row_start_, batch_.num_seqs) = batch_.num_tokens = row;
}

void BatchBuilder::add_pages(const StepPlan& plan) {
  const int width = (batch_.max_kv + block_size_ - 1) / block_size_;
  SKIFF_CHECK(static_cast<size_t>(width * batch_.num_seqs) <= pages_.size());
  for (int s = 0; s < batch_.num_seqs; ++s) {
    const int used = (*at(kv_len_, s) + block_size_ - 1) / block_size_;
    const BlockId* from = plan.pages.data() + plan.page_start[static_cast<size_t>(s)];
    int32_t* to = at(pages_, s * width);
    std::fill(std::copy(from, from + used, to), to + width, 0);
  }
  batch_.pages = host_tensor(pages_.data(), DType::kI32, {batch_.num_seqs, width});
}

LogitRows::Range BatchBuilder::take_rows(size_t span, int row, int count) {
  SKIFF_CHECK(out_rows_.size() + static_cast<size_t>(count) <= out_rows_.capacity());
  const LogitRows::Range range{span, row, static_cast<int>(out_rows_.size()), count};
  for (int i = 0; i < count; ++i) out_rows_.push_back(row + i);
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
}

}  // namespace skiff
