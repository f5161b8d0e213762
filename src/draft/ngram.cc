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
      source_ = followed(text, source_, read_);
      // What ends before the token at read_ has a continuation now.
      for (NgramTable& table : tables_)
        if (read_ >= table.n()) table.add(text, read_);
    }
    source_ = found(text, source_);
  }

  std::vector<Token> propose(std::span<const Token> text, int most) const override {
    int source = source_;
    for (int at = read_; at < std::ssize(text); ++at) source = followed(text, source, at);
    source = found(text, source);
    if (source == 0) return {};
    return continuation(text, source, most);
  }

 private:
  // Returns the source behind the token at `at`: the same place, if the token stands there too.
  static int followed(std::span<const Token> text, int source, int at) {
    const bool follows =
        source > 0 && text[static_cast<size_t>(source)] == text[static_cast<size_t>(at)];
    return follows ? source + 1 : 0;
  }
  // Returns `source`, or where the last tokens of the text stood before, if that is 0.
  int found(std::span<const Token> text, int source) const {
    for (auto table = tables_.begin(); table != tables_.end() && source == 0; ++table)
      source = table->find(text);
    return source;
  }

  std::vector<NgramTable> tables_;  // those of the longest n-grams first
  int read_ = 0;                    // tokens that have been read
  int source_ = 0;  // what stands behind that many tokens is drafted next; 0: nothing is
};

}  // namespace

std::unique_ptr<Drafter> make_ngram(const Settings& settings) {
  return std::make_unique<Ngram>(settings);
}

}  // namespace skiff::draft
