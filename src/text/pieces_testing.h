// text/pieces_testing.h -- a vocabulary of given byte strings that only decodes, for tests.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace skiff::text {

// Token i is the i-th byte string; the last `num_special` tokens are special.
class Pieces final : public Tokenizer {
 public:
  explicit Pieces(std::vector<std::string> pieces, int num_special = 1)
      : pieces_(std::move(pieces)), num_special_(num_special) {}
  std::vector<int32_t> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string_view piece(int32_t token) const override {
    return pieces_[static_cast<size_t>(token)];
  }
  bool is_special(int32_t token) const override { return token + num_special_ >= vocab_size(); }
  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
  std::string bos() const override { return {}; }
  std::string eos() const override { return {}; }
  std::string decode(std::span<const int32_t>, bool) const override { return {}; }

 private:
  std::vector<std::string> pieces_;
  int num_special_;
};

}  // namespace skiff::text
