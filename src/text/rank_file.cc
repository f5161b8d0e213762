#include "text/rank_file.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/load_error.h"
#include "text/base64.h"
#include "text/bpe_reader.h"
#include "text/string_map.h"

namespace skiff::text {
namespace {

constexpr size_t kMaxToken = 512;  // bounds the splits that bpe_of_ranks tries

struct Line {
  std::string token;
  int32_t rank = -1;
};

std::optional<Line> read_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos) return std::nullopt;
  auto token = bytes_from_base64(line.substr(0, space));
  Line out;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, out.rank);
  if (!token || token->empty() || error != std::errc() || stop != end || out.rank < 0)
    return std::nullopt;
  out.token = std::move(*token);
  return out;
}

// Removes the first line from `rest` and returns it without its line end.
std::string_view next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  std::vector<std::string> run() {
    while (!rest_.empty()) {
      const std::string_view text = next_line(rest_);
      ++number_;
      if (!text.empty()) add(text);
    }
    check_holes();
    return std::move(out_);
  }

 private:
  void add(std::string_view text) {
    auto line = read_line(text);
    if (!line) fail_load("{}: line {} is not \"base64 rank\"", where_, number_);
    if (line->rank > kMaxTokenId)
      fail_load("{}: line {}: rank {}, the limit is {}", where_, number_, line->rank, kMaxTokenId);
    if (line->token.size() > kMaxToken)
      fail_load("{}: line {}: a token of {} bytes, the limit is {}", where_, number_,
                line->token.size(), kMaxToken);
    const auto at = static_cast<size_t>(line->rank);
    if (at >= out_.size()) out_.resize(at + 1);
    if (!out_[at].empty())
      fail_load("{}: line {}: rank {} comes twice", where_, number_, line->rank);
    if (!seen_.emplace(line->token, line->rank).second)
      fail_load("{}: line {}: its token comes twice", where_, number_);
    out_[at] = std::move(line->token);
  }

  void check_holes() const {
    for (size_t rank = 0; rank < out_.size(); ++rank)
      if (out_[rank].empty()) fail_load("{}: there is no token of rank {}", where_, rank);
    for (int byte = 0; byte < 256; ++byte)
      if (!seen_.contains(std::string(1, static_cast<char>(byte))))
        fail_load("{}: there is no token for the byte 0x{:02X}", where_, byte);
  }

  std::string_view rest_;
  const std::string& where_;
  size_t number_ = 0;
  std::vector<std::string> out_;
  StringMap<int32_t> seen_;
};

}  // namespace

bool is_rank_file(std::string_view bytes) {
  std::string_view rest = bytes.substr(0, 4 * kMaxToken);
  return read_line(next_line(rest)).has_value();
}

std::vector<std::string> read_rank_file(std::string_view bytes, const std::string& where) {
  return Reader(bytes, where).run();
}

BpeModel bpe_of_ranks(const std::vector<std::string>& tokens) {
  BpeModel model;
  model.byte_level = model.ignore_merges = true;
  model.vocab.reserve(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    model.vocab.add(tokens[rank], static_cast<int32_t>(rank));
  std::vector<std::array<int32_t, 3>> merges;  // left token, right token, merged token
  for (const std::string& token : tokens) {
    const std::string_view text = token;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const int32_t left = model.vocab.find(text.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = model.vocab.find(text.substr(cut));
      if (right >= 0) merges.push_back({left, right, model.vocab.find(text)});
    }
  }
  model.merges = MergeTable(merges.size());
  for (const auto& [left, right, both] : merges)
    model.merges.add(left, right, {.rank = both, .token = both});
  return model;
}

}  // namespace skiff::text
