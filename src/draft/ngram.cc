#include "draft/ngram.h"

#include <algorithm>

#include "base/check.h"
#include "draft/ngram_table.h"

namespace skiff::draft {
namespace {

class Ngram final : public Drafter {
 public:
  explicit Ngram(const Settings& settings) {
    SKIFF_CHECK(1 <= settings.min_ngram && settings.min_ngram <= settings.max_ngram &&
                settings.max_ngram <= kMaxNgram);
    for (int n = settings.max_ngram; n >= settings.min_ngram; --n) tables_.emplace_back(n);
  }

  void read(std::span<const Token> text) override {
    for (; read_ < std::ssize(text); ++read_) {
      const bool follows =
          source_ > 0 && text[static_cast<size_t>(source_)] == text[static_cast<size_t>(read_)];
      source_ = follows ? source_ + 1 : 0;
      // What ends before the token at read_ has a continuation now.
      for (NgramTable& table : tables_)
        if (read_ >= table.n()) table.add(text, read_);
    }
    for (auto table = tables_.begin(); table != tables_.end() && source_ == 0; ++table)
      source_ = table->find(text);
  }

  std::vector<Token> propose(std::span<const Token> text, int most) const override {
    if (source_ == 0) return {};
    return continuation(text, source_, most);
  }

 private:
  std::vector<NgramTable> tables_;  // those of the longest n-grams first
  int read_ = 0;                    // tokens that have been read
  int source_ = 0;  // what stands behind that many tokens is drafted next; 0: nothing is
};

}  // namespace

std::unique_ptr<Drafter> make_ngram(const Settings& settings) {
  return std::make_unique<Ngram>(settings);
}

}  // namespace skiff::draft
