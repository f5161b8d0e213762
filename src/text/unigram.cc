#include "text/unigram.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "text/bpe_reader.h"

namespace skiff::text {
namespace {

constexpr double kUnknownPenalty = 10;  // subtracted from the score of the least likely piece

std::vector<std::pair<std::string, int32_t>> entries_of(const std::vector<Unigram::Piece>& pieces) {
  std::vector<std::pair<std::string, int32_t>> out;
  out.reserve(pieces.size());
  for (const Unigram::Piece& piece : pieces)
    out.emplace_back(piece.text, static_cast<int32_t>(out.size()));
  return out;
}

// The reference computes a number as its decimal digits times, or divided by, a power of ten, which
// rounds twice where the nearest double rounds once. The last bit decides between segmentations
// that would be equally good.
double rounded_twice(double value) {
  std::array<char, 32> text;
  const char* end =
      std::to_chars(text.begin(), text.end(), std::abs(value), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  const char* at = text.begin();
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') continue;
    digits = 10 * digits + static_cast<uint64_t>(*at - '0');
    --exponent;
  }
  int power = 0;
  std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, power);
  exponent += power + 1;  // one digit stands before the decimal point
  const double scale = std::pow(10.0, std::abs(exponent));
  const auto significand = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? significand / scale : significand * scale, value);
}

Unigram::Piece read_piece(const Json& entry, const std::string& where) {
  if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
      !std::isfinite(entry[1].get<double>()))
    fail_load("{}: vocab: {} is not a piece and its score", where, entry.dump().substr(0, 80));
  return {entry[0].get<std::string>(), rounded_twice(entry[1].get<double>())};
}

}  // namespace

// The best segmentation up to a position: its score and the piece that ends there.
struct Unigram::Step {
  size_t begin = 0;
  int32_t token = kNowhere;
  double score = 0;
  static constexpr int32_t kNowhere = -2;
};

Unigram::Unigram(const std::vector<Piece>& pieces, int32_t unk, bool byte_fallback)
    : trie_(entries_of(pieces)), unk_(unk) {
  double least = 0;
  for (size_t id = 0; id < pieces.size(); ++id) {
    scores_.push_back(pieces[id].score);
    ids_[pieces[id].text] = static_cast<int32_t>(id);
    least = id == 0 ? pieces[id].score : std::min(least, pieces[id].score);
  }
  unk_score_ = least - kUnknownPenalty;
  if (!byte_fallback) return;
  bytes_.emplace();
  for (size_t byte = 0; byte < 256; ++byte)
    (*bytes_)[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

std::optional<int32_t> Unigram::find(std::string_view piece) const {
  const auto it = ids_.find(piece);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::vector<Unigram::Step> Unigram::best_path(std::string_view word) const {
  std::vector<Step> best(word.size() + 1);
  const auto offer = [&](size_t begin, size_t end, int32_t token, double score) {
    Step& step = best[end];
    if (step.token == Step::kNowhere || score > step.score) step = {begin, token, score};
  };
  for (size_t at = 0, next = 0; at < word.size(); at = next) {
    utf8_next(word, &next);
    const double so_far = best[at].score;
    bool known = false;  // whether the character alone is a piece
    trie_.prefixes(word.substr(at), [&](size_t length, int32_t token) {
      offer(at, at + length, token, so_far + scores_[static_cast<size_t>(token)]);
      known |= length == next - at;
    });
    if (!known) offer(at, next, unk_, so_far + unk_score_);
  }
  return best;
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& out) const {
  const std::vector<Step> best = best_path(word);
  std::vector<std::pair<size_t, int32_t>> path;  // where each piece begins, and its id
  for (size_t end = word.size(); end > 0; end = best[end].begin)
    path.emplace_back(best[end].begin, best[end].token);
  std::reverse(path.begin(), path.end());
  for (size_t i = 0; i < path.size();) {
    const auto [begin, token] = path[i];
    if (token != unk_) {
      out.push_back(token);
      ++i;
      continue;
    }
    while (i < path.size() && path[i].second == unk_)
      ++i;  // consecutive unknown characters become one token
    unknown(word.substr(begin, (i < path.size() ? path[i].first : word.size()) - begin), out);
  }
}

void Unigram::unknown(std::string_view text, std::vector<int32_t>& out) const {
  const auto token_of = [&](char c) { return (*bytes_)[static_cast<uint8_t>(c)]; };
  if (const auto whole = find(text)) {
    out.push_back(*whole);
  } else if (bytes_ &&
             std::all_of(text.begin(), text.end(), [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : text) out.push_back(token_of(c));
  } else if (unk_ >= 0) {
    out.push_back(unk_);
  }
}

UnigramFile read_unigram(const Fields& spec) {
  const std::string& where = spec.where();
  const auto vocab = spec.json().find("vocab");
  if (vocab == spec.json().end() || !vocab->is_array() || vocab->empty())
    fail_load("{}: vocab is missing or empty", where);
  if (vocab->size() > kMaxTokenId)
    fail_load("{}: {} pieces, the limit is {}", where, vocab->size(), kMaxTokenId);
  std::vector<Unigram::Piece> pieces;
  std::vector<std::string> written;
  for (const Json& entry : *vocab) {
    pieces.push_back(read_piece(entry, where));
    written.push_back(pieces.back().text);
  }
  const auto unk = spec.get<int64_t>("unk_id", -1);
  if (spec.has("unk_id") && (unk < 0 || unk >= static_cast<int64_t>(pieces.size())))
    fail_load("{}: unk_id {} is not one of 0 to {}", where, unk, pieces.size() - 1);
  return {Unigram(pieces, static_cast<int32_t>(unk), spec.get("byte_fallback", false)),
          std::move(written)};
}

}  // namespace skiff::text
