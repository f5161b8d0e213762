#include "sample/token_counts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skiff::sample {
namespace {

constexpr size_t kPiece = size_t{1} << 18;  // numbers that are sent with one copy

int64_t list_size(int vocab, int max_tokens) {
  return 2 * (1 + int64_t{std::min(vocab, max_tokens)});
}

}  // namespace

size_t TokenCounts::bytes(int vocab, int max_slots, int max_tokens) {
  return static_cast<size_t>(max_slots) * static_cast<size_t>(list_size(vocab, max_tokens)) *
         sizeof(int32_t);
}

TokenCounts::TokenCounts(Ops& ops, Staging& staging, int vocab, int max_slots, int max_tokens)
    : ops_(ops),
      staging_(staging),
      most_(std::min(vocab, max_tokens)),
      memory_(ops.device(), bytes(vocab, max_slots, max_tokens)),
      seen_{memory_.view(DType::kI32, {max_slots, list_size(vocab, max_tokens)})},
      place_(static_cast<size_t>(vocab), -1) {}

void TokenCounts::open(const OpenSlot& slot, bool with_prompt) {
  std::vector<int32_t> list = {0, 0};
  const auto output = static_cast<size_t>(slot.prompt_len - slot.written);
  for (size_t i = with_prompt ? 0 : output; i < slot.history.size(); ++i) {
    const Token token = slot.history[i];
    if (token < 0 || std::cmp_greater_equal(token, place_.size())) continue;
    int32_t& place = place_[static_cast<size_t>(token)];
    if (place < 0) {
      place = static_cast<int32_t>(list.size());
      list.insert(list.end(), {token, 0});
    }
    if (i >= output) ++list[static_cast<size_t>(place) + 1];
  }
  for (size_t i = 2; i < list.size(); i += 2) place_[static_cast<size_t>(list[i])] = -1;
  list[0] = static_cast<int32_t>(list.size() / 2) - 1;
  SKIFF_CHECK(list[0] <= most_, "{} distinct tokens, room for {}", list[0], most_);
  const Tensor to = seen_.lists.row_range(slot.slot, 1);
  for (size_t at = 0; at < list.size(); at += kPiece) {
    const size_t n = std::min(kPiece, list.size() - at);
    const auto count = static_cast<int64_t>(n);
    const Tensor from = staging_.room(n * sizeof(int32_t)).take(DType::kI32, {1, count});
    std::copy_n(list.begin() + static_cast<long>(at), n, from.as<int32_t>());
    ops_.copy(to.col_range(static_cast<int64_t>(at), count), from);
  }
}

void TokenCounts::penalize(Tensor logits, const Penalties& rows) {
  if (rows.row.rows() > 0) ops_.penalize(logits, seen_, rows);
}

void TokenCounts::count(Tensor tokens, const Penalties& rows) {
  if (rows.row.rows() > 0) ops_.count_tokens(seen_, rows.slot, tokens, rows.row);
}

void TokenCounts::count(int slot, Token token) {
  PinnedArena& memory = staging_.room(3 * kTensorAlign);
  const auto number = [&](int32_t value) {
    const Tensor out = memory.take(DType::kI32, {1});
    *out.as<int32_t>() = value;
    return out;
  };
  const Tensor slots = number(slot), tokens = number(token);
  ops_.count_tokens(seen_, slots, tokens, number(0));
}

}  // namespace skiff::sample
