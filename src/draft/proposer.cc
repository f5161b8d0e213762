#include "draft/proposer.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::draft {
namespace {

// A step adds a token for each draft and one more; a text of which more is unread waits for
// read_on().
constexpr int64_t kReadAtOnce = 64;

const Method& method_of(const Settings& settings) {
  const Method* method = find_method(settings.method);
  SKIFF_CHECK(method != nullptr, "there is no method \"{}\"", settings.method);
  SKIFF_CHECK(settings.tokens >= 1 && settings.tokens <= kMaxTokens);
  return *method;
}

}  // namespace

Proposer::Proposer(const Settings& settings) : settings_(settings), method_(method_of(settings)) {}

void Proposer::open(const OpenSlot& slot) {
  const auto i = static_cast<size_t>(slot.slot);
  if (slots_.size() <= i) slots_.resize(i + 1);
  slots_[i] = {};
  std::erase(unread_, i);
  if (slot.pooling) return;
  std::vector<Token>& tokens = slots_[i].tokens;
  tokens = slot.reference.all();
  if (!tokens.empty()) tokens.push_back(kBreak);
  tokens.insert(tokens.end(), slot.history.begin(), slot.history.end());
  slots_[i].drafter = method_.make(settings_);
  unread_.push_back(i);
}

void Proposer::read(Text& text, int64_t most) {
  text.read = std::min(text.read + most, std::ssize(text.tokens));
  text.drafter->read(std::span(text.tokens).first(static_cast<size_t>(text.read)));
}

void Proposer::read_on() {
  for (int64_t left = kReadOn; left > 0 && !unread_.empty();) {
    Text& text = slots_[unread_.front()];
    const int64_t from = text.read;
    read(text, left);
    left -= text.read - from;
    if (text.read == std::ssize(text.tokens)) unread_.erase(unread_.begin());
  }
}

std::vector<Token> Proposer::next(int slot, std::span<const Token> gained,
                                  std::vector<Token> guesses) {
  Text& text = slots_.at(static_cast<size_t>(slot));
  if (!text.drafter) return guesses;
  text.tokens.insert(text.tokens.end(), gained.begin(), gained.end());
  if (std::ssize(text.tokens) - text.read > kReadAtOnce) return guesses;
  read(text, kReadAtOnce);
  const size_t known = text.tokens.size();
  text.tokens.insert(text.tokens.end(), guesses.begin(), guesses.end());
  const std::vector<Token> more =
      text.drafter->propose(text.tokens, settings_.tokens - static_cast<int>(std::ssize(guesses)));
  text.tokens.resize(known);
  guesses.insert(guesses.end(), more.begin(), more.end());
  return guesses;
}

}  // namespace skiff::draft
