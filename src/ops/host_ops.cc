#include "ops/host_ops.h"

#include <cstring>

#include "ops/layer_arena.h"
#include "tensor/convert.h"

namespace skiff {
namespace {

std::byte* row_data(const Tensor& t, int64_t row) {
  return static_cast<std::byte*>(t.data) + static_cast<size_t>(row * t.row_stride) * bytes(t.dtype);
}

}  // namespace

// These backends keep the scratch of experts() in memory of their own.
size_t HostOps::arena_bytes(const FeedForward& ffn, int64_t /*hidden*/, int64_t rows,
                            DType act) const {
  return layer_arena_bytes(ffn, rows, act, [](const Moe&) { return size_t{0}; });
}

void HostOps::copy(Tensor out, Tensor x) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  if (out.dtype != x.dtype) return convert(out, x);
  for (int64_t r = 0; r < out.rows(); ++r)
    std::memcpy(row_data(out, r), row_data(x, r), static_cast<size_t>(x.cols()) * bytes(x.dtype));
}

uint64_t HostOps::stamp() {
  stamps_[++num_stamps_ % stamps_.size()] = Clock::now();
  return num_stamps_;
}

double HostOps::seconds_between(uint64_t from, uint64_t to) {
  SKIFF_CHECK(from <= to && to <= num_stamps_ && num_stamps_ - from < stamps_.size(),
              "stamps {} and {} of {}", from, to, num_stamps_);
  const auto at = [&](uint64_t stamp) { return stamps_[stamp % stamps_.size()]; };
  return std::chrono::duration<double>(at(to) - at(from)).count();
}

void HostOps::begin_step(const RaggedBatch& batch, std::span<const Arrival> arrivals) {
  for (const Arrival& arrival : arrivals)
    if (arrival.to) copy(arrival.to, arrival.from);
  move_back(batch);
}

void HostOps::load_tokens(Tensor tokens, Tensor last) {
  auto* to = tokens.as<int32_t>();
  for (int64_t i = 0; i < tokens.rows(); ++i) {
    if (to[i] >= 0) continue;
    SKIFF_CHECK(-1 - to[i] < last.rows(), "slot {} of {}", -1 - to[i], last.rows());
    to[i] = last.as<int32_t>()[-1 - to[i]];
  }
}

void HostOps::store_edits(const EditPages& pages, const EditChanges& changes) {
  SKIFF_CHECK(pages.token.contiguous() && pages.add.contiguous());
  for (int64_t i = 0; i < changes.at.rows(); ++i) {
    const int32_t at = changes.at.as<int32_t>()[i];
    pages.token.as<int32_t>()[at] = changes.token.as<int32_t>()[i];
    pages.add.as<float>()[at] = changes.add.as<float>()[i];
  }
}

void HostOps::count_tokens(const SeenTokens& seen, Tensor slots, Tensor tokens, Tensor rows) {
  SKIFF_CHECK_EQ(slots.rows(), rows.rows());
  for (int64_t i = 0; i < slots.rows(); ++i) {
    auto* list = seen.lists.row<int32_t>(slots.as<int32_t>()[i]);
    const int32_t token = tokens.as<int32_t>()[rows.as<int32_t>()[i]];
    int32_t *entry = list + 2, *end = entry + 2 * int64_t{*list};
    while (entry != end && *entry != token) entry += 2;
    if (entry == end) {
      SKIFF_CHECK(2 * int64_t{*list} + 2 < seen.lists.cols(), "{} tokens seen", *list);
      ++*list;
      entry[0] = token;
      entry[1] = 0;
    }
    ++entry[1];
  }
}

void HostOps::store_tokens(Tensor last, Tensor slots, Tensor tokens) {
  SKIFF_CHECK_EQ(slots.rows(), tokens.rows());
  for (int64_t i = 0; i < slots.rows(); ++i) {
    const int32_t slot = slots.as<int32_t>()[i];
    SKIFF_CHECK(slot >= -1 && slot < last.rows(), "slot {} of {}", slot, last.rows());
    if (slot >= 0) last.as<int32_t>()[slot] = tokens.as<int32_t>()[i];
  }
}

void HostOps::gqa_project(Tensor qkv, Tensor x, const Linear& w, const Norm& q, const Norm& k,
                          const Gqa& spec, const RaggedBatch& batch, const KvLayer& kv) {
  linear(qkv, x, w);
  gqa_store(qkv, q, k, spec, batch, kv);
}

void HostOps::gated_linear(Tensor out, Tensor x, const Linear& w, Act act, Arena& arena) {
  const size_t mark = arena.mark();
  const Tensor gate_up = arena.take(out.dtype, {x.rows(), 2 * out.cols()});
  linear(gate_up, x, w);
  gated_act(out, gate_up, act);
  arena.rewind(mark);
}

}  // namespace skiff
