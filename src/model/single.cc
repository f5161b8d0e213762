#include "model/single.h"

#include <numeric>

namespace skiff {
namespace {

constexpr int kPage = 64;

int pages_for(int positions) { return (positions + kPage - 1) / kPage; }

std::vector<int32_t> counting(int32_t first, size_t n) {
  std::vector<int32_t> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

Tensor i32(std::span<const int32_t> values, std::initializer_list<int64_t> shape) {
  return host_tensor(const_cast<int32_t*>(values.data()), DType::kI32, shape);
}

}  // namespace

SingleSequence::SingleSequence(const LoadedModel& model, Ops& ops, DType act, int max_context,
                               int max_rows)
    : model_(model),
      mesh_(make_solo_mesh()),
      kv_(model.spec, pages_for(max_context), kPage, act, ops.device()),
      arena_(Buffer(ops.device(), Decoder::arena_bytes(model.spec, act, max_rows, max_rows))),
      decoder_(model_.spec, model_.weights, ops, mesh_, act),
      pages_(counting(0, static_cast<size_t>(pages_for(max_context)))) {}

Tensor SingleSequence::forward(std::span<const int32_t> tokens) {
  const auto rows = static_cast<int>(tokens.size());
  SKIFF_CHECK(length_ + rows <= std::ssize(pages_) * kPage, "{} tokens after {} do not fit", rows,
              length_);
  const std::vector<int32_t> positions = counting(length_, tokens.size());
  const std::vector<int32_t> out_rows = counting(0, tokens.size());
  const int32_t row_start[] = {0, rows};
  length_ += rows;
  const int32_t kv_len[] = {length_};
  const RaggedBatch batch{.num_seqs = 1,
                          .num_tokens = rows,
                          .max_rows = rows,
                          .max_kv = length_,
                          .tokens = i32(tokens, {rows}),
                          .positions = i32(positions, {rows}),
                          .row_start = i32(row_start, {2}),
                          .kv_len = i32(kv_len, {1}),
                          .pages = i32(pages_, {1, std::ssize(pages_)}),
                          .out_rows = i32(out_rows, {rows}),
                          .host_row_start = row_start,
                          .host_kv_len = kv_len};
  arena_.reset();
  return decoder_.forward(batch, kv_.layers(), arena_);
}

}  // namespace skiff
