#include "text/word_cache.h"

#include "text/text_hash.h"

namespace skiff::text {
namespace {

// The bits of a slot's head, from the lowest: 1 while being written, 1 for the kind, 6 for the size
// of the word (0: free), 3 for the number of tokens, 53 for the sequence number.
constexpr uint64_t kBusy = 1, kKind = 2, kTag = 0xFF;
constexpr int kSizeAt = 2, kCountAt = 8, kSequenceAt = 11;

}  // namespace

WordCache::Key::Key(std::string_view word, unsigned kind)
    : count_((word.size() + 7) / 8), tag_(word.size() << kSizeAt | kind * kKind) {
  hash_ = tag_;
  for (size_t i = 0; i < count_; ++i) {
    words_[i] = load_bytes(word.data() + 8 * i, i + 1 < count_ ? 8 : word.size() - 8 * i);
    hash_ = hash_mix(hash_ ^ words_[i]);
  }
  hash_ = hash_mix(hash_);
}

bool WordCache::find(const Key& key, std::vector<int32_t>& out) const {
  const Slot& slot = slots_[key.hash_ % kSlots];
  const uint64_t head = slot.head.load(std::memory_order_acquire);
  if ((head & kTag) != key.tag_) return false;
  for (size_t i = 0; i < key.count_; ++i)
    if (slot.word[i].load(std::memory_order_acquire) != key.words_[i]) return false;
  std::array<uint64_t, kMaxTokens / 2> pairs;
  const size_t count = head >> kCountAt & 7;
  for (size_t i = 0; 2 * i < count; ++i) pairs[i] = slot.tokens[i].load(std::memory_order_acquire);
  if (slot.head.load(std::memory_order_relaxed) != head) return false;
  for (size_t i = 0; i < count; ++i)
    out.push_back(static_cast<int32_t>(pairs[i / 2] >> (i % 2 * 32)));
  return true;
}

void WordCache::store(const Key& key, const int32_t* tokens, size_t count) {
  if (count > kMaxTokens) return;
  Slot& slot = slots_[key.hash_ % kSlots];
  uint64_t head = slot.head.load(std::memory_order_relaxed);
  if (head & kBusy) return;
  if (!slot.head.compare_exchange_strong(head, head | kBusy, std::memory_order_acq_rel)) return;
  for (size_t i = 0; i < key.count_; ++i)
    slot.word[i].store(key.words_[i], std::memory_order_release);
  for (size_t i = 0; 2 * i < count; ++i) {
    const auto token = [&](size_t at) {
      return at < count ? uint64_t{static_cast<uint32_t>(tokens[at])} : 0;
    };
    slot.tokens[i].store(token(2 * i) | token(2 * i + 1) << 32, std::memory_order_release);
  }
  const uint64_t sequence = (head >> kSequenceAt) + 1;
  slot.head.store(sequence << kSequenceAt | count << kCountAt | key.tag_,
                  std::memory_order_release);
}

}  // namespace skiff::text
