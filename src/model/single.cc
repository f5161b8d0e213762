#include "model/single.h"

#include <algorithm>
#include <numeric>

namespace skiff::model {
namespace {

constexpr int kPage = 64;

int pages_for(int positions) { return (positions + kPage - 1) / kPage; }

std::vector<int32_t> counting(int32_t first, size_t n) {
  std::vector<int32_t> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

}  // namespace

SingleSequence::SingleSequence(const LoadedModel& model, Ops& ops, comm::Mesh& mesh, DType act,
                               int max_context, int max_rows, const std::optional<KvFormat>& kv)
    : model_(model),
      ops_(ops),
      kv_(model.spec, pages_for(max_context), kPage, kv.value_or(KvFormat{.dtype = act}),
          ops.device(), model.kv_scales),
      arena_(Buffer(ops.device(), Decoder::arena_bytes(model.spec, act, max_rows, max_rows, ops))),
      decoder_(model_.spec, model_.weights, ops, mesh, act),
      pages_(counting(0, static_cast<size_t>(pages_for(max_context)))),
      upload_(ops, (3 * static_cast<size_t>(max_rows) + pages_.size() + 3) * sizeof(int32_t) +
                       8 * kTensorAlign) {
  const size_t bytes = static_cast<size_t>(max_rows) * static_cast<size_t>(model.spec.vocab) * 4;
  if (ops.device() != Device{}) logits_ = Buffer(Device{}, bytes);
}

Tensor SingleSequence::forward(std::span<const int32_t> tokens) {
  const auto rows = static_cast<int>(tokens.size());
  SKIFF_CHECK(length_ + rows <= std::ssize(pages_) * kPage, "{} tokens after {} do not fit", rows,
              length_);
  const std::vector<int32_t> positions = counting(length_, tokens.size());
  const std::vector<int32_t> out_rows = counting(0, tokens.size());
  const int32_t row_start[] = {0, rows};
  length_ += rows;
  const int32_t kv_len[] = {length_};
  upload_.begin();
  const auto send = [&](std::span<const int32_t> values, std::initializer_list<int64_t> shape) {
    const Tensor host = upload_.take(DType::kI32, shape);
    std::ranges::copy(values, host.as<int32_t>());
    return upload_.there(host);
  };
  const RaggedBatch batch{.num_seqs = 1,
                          .num_tokens = rows,
                          .max_rows = rows,
                          .max_kv = length_,
                          .tokens = send(tokens, {rows}),
                          .positions = send(positions, {rows}),
                          .row_start = send(row_start, {2}),
                          .kv_len = send(kv_len, {1}),
                          .pages = send(pages_, {1, std::ssize(pages_)}),
                          .out_rows = send(out_rows, {rows}),
                          .host_row_start = row_start,
                          .host_kv_len = kv_len};
  upload_.send();
  ops_.begin_step(batch, {});
  arena_.reset();
  Tensor logits = decoder_.forward(batch, kv_.layers(), arena_).logits;
  if (logits_.size() > 0) {
    const Tensor host = logits_.view(DType::kF32, {logits.rows(), logits.cols()});
    ops_.copy(host, logits);
    logits = host;
  }
  ops_.wait(ops_.mark());
  return logits;
}

}  // namespace skiff::model
