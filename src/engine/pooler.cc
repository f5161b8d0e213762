#include "engine/pooler.h"

#include "tensor/convert.h"

namespace skiff::engine {

void Pooler::open(const OpenSlot& slot) {
  slots_.at(static_cast<size_t>(slot.slot)) = {.pooling = slot.pooling, .sum = {}};
}

void Pooler::start(const StepPlan& plan, const RaggedBatch& batch, const model::Forward& forward,
                   int first_logit, PooledStep& step) {
  step.pieces.clear();
  step.memory.reset();
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    const Pooling& pooling = slots_.at(static_cast<size_t>(span.slot)).pooling;
    const int row = batch.host_row_start[i];
    PooledRows piece{.span = i, .slot = span.slot, .last = span.pool};
    if (span.pool_logits)
      piece.rows = pick(forward.logits.row_range(first_logit++, 1), pooling.columns, step.memory);
    else if (pooling.rows == Pooling::kMean)
      piece.rows = to_host(forward.hidden.row_range(row, span.count), step.memory);
    else if (pooling.rows == Pooling::kFirst && span.begin == 0)
      piece.rows = to_host(forward.hidden.row_range(row, 1), step.memory);
    else if (pooling.rows == Pooling::kLast && span.pool)
      piece.rows = to_host(forward.hidden.row_range(row + span.count - 1, 1), step.memory);
    if (piece.rows || piece.last) step.pieces.push_back(piece);
  }
}

Tensor Pooler::to_host(Tensor rows, PinnedArena& memory) {
  const Tensor out = memory.take(rows.dtype, {rows.rows(), rows.cols()});
  ops_.copy(out, rows);
  return out;
}

Tensor Pooler::pick(Tensor logits, const std::vector<int32_t>& columns, PinnedArena& memory) {
  if (columns.empty()) return to_host(logits, memory);
  const Tensor out = memory.take(DType::kF32, {1, std::ssize(columns)});
  for (size_t i = 0; i < columns.size(); ++i)
    ops_.copy(out.col_range(static_cast<int64_t>(i), 1), logits.col_range(columns[i], 1));
  return out;
}

void Pooler::finish(PooledStep& step, size_t spans, StepResult& result) {
  for (const PooledRows& piece : step.pieces) {
    Slot& slot = slots_.at(static_cast<size_t>(piece.slot));
    if (piece.rows) gather(piece.rows, slot);
    if (!piece.last) continue;
    result.pooled.resize(spans);
    result.pooled[piece.span] = vector_of(slot);
  }
  step.pieces.clear();
}

void Pooler::gather(Tensor rows, Slot& slot) {
  slot.sum.resize(static_cast<size_t>(rows.cols()), 0);
  slot.rows += static_cast<int>(rows.rows());
  const auto add = [&]<class T>(const T* row) {
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (double& sum : slot.sum) sum += static_cast<double>(to_float(*row++));
  };
  if (rows.dtype == DType::kBF16) return add(rows.as<BF16>());
  add(rows.as<float>());
}

std::vector<float> Pooler::vector_of(const Slot& slot) {
  SKIFF_CHECK(slot.rows > 0, "a sequence is pooled without rows");
  std::vector<float> out;
  out.reserve(slot.sum.size());
  for (const double sum : slot.sum) out.push_back(static_cast<float>(sum / slot.rows));
  return out;
}

}  // namespace skiff::engine
