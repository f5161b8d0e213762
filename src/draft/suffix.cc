#include "draft/suffix.h"

#include <algorithm>

#include "base/random.h"
#include "draft/suffix_automaton.h"

namespace skiff::draft {
namespace {

constexpr int kMostRead = 1 << 18;

class Suffix final : public Drafter {
 public:
  explicit Suffix(const Settings& settings)
      : max_depth_(settings.max_depth),
        max_factor_(settings.max_factor),
        automaton_(random_seed()) {}

  void read(std::span<const Token> text) override {
    const auto end = std::min<int64_t>(std::ssize(text), kMostRead);
    while (automaton_.size() < end) automaton_.add(text[static_cast<size_t>(automaton_.size())]);
  }

  std::vector<Token> propose(std::span<const Token> text, int most) const override {
    if (automaton_.size() < std::ssize(text)) return {};
    const auto [length, end] = automaton_.longest();
    if (length == 0) return {};
    const double room = max_factor_ * std::min(length, max_depth_);
    return continuation(text, end, static_cast<int>(std::min<double>(most, room)));
  }

 private:
  int max_depth_;
  double max_factor_;
  SuffixAutomaton automaton_;
};

}  // namespace

std::unique_ptr<Drafter> make_suffix(const Settings& settings) {
  return std::make_unique<Suffix>(settings);
}

}  // namespace skiff::draft
