// Implements the methods of str that split a text.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/search.h"
#include "text/jinja/text_method.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

// Returns [begin, end) of each run of characters that are not white space.
std::vector<std::pair<size_t, size_t>> words(Budget& budget, std::string_view text) {
  std::vector<std::pair<size_t, size_t>> out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool blank = is_space(utf8_next(text, &at));
    if (!blank && !inside) {
      budget.make(sizeof(out[0]));
      out.emplace_back(begin, begin);
    }
    inside = !blank;
    if (inside) out.back().second = at;
  }
  return out;
}

// Makes at most `limit` splits (negative: all), counted from the left or from the right. The
// unsplit rest keeps its inner white space and that at its far end.
Value split_at_space(const TextSelf& self, int64_t limit, bool from_right) {
  const auto found = words(self.in.budget(), self.text);
  const size_t n = found.size();
  const size_t splits = limit < 0 ? n : std::min(n, static_cast<size_t>(limit));
  const auto part = [&](size_t begin, size_t end) {
    return self.result(std::string(self.text.substr(begin, end - begin)));
  };
  Values parts;
  if (from_right && splits < n) parts.push_back(part(0, found[n - splits - 1].second));
  for (size_t i = from_right ? n - splits : 0; i < (from_right ? n : splits); ++i)
    parts.push_back(part(found[i].first, found[i].second));
  if (!from_right && splits < n) parts.push_back(part(found[splits].first, self.text.size()));
  return self.list(std::move(parts));
}

bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value partitioned(const TextSelf& self, const Args& args, bool last) {
  const std::string& sep = Bound("partition", args, {"sep"}).text(0);
  if (sep.empty()) fail("empty separator");
  const size_t at = last ? find_last_text(self.text, sep) : find_text(self.text, sep);
  const auto part = [&](std::string_view text) { return self.result(std::string(text)); };
  if (at == self.text.npos)
    return last ? self.list({part(""), part(""), part(self.text)}, Seq::Form::kTuple)
                : self.list({part(self.text), part(""), part("")}, Seq::Form::kTuple);
  return self.list(
      {part(self.text.substr(0, at)), part(sep), part(self.text.substr(at + sep.size()))},
      Seq::Form::kTuple);
}

}  // namespace

Value split_text(const TextSelf& self, const Args& args) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  if (!bound[0] || bound[0]->is_none()) return split_at_space(self, limit, false);
  const std::string& sep = bound.text(0);
  if (sep.empty()) fail("empty separator");
  Values parts;
  std::string_view rest = self.text;
  for (size_t at; (at = find_text(rest, sep)) != rest.npos;) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) break;
    parts.push_back(self.result(std::string(rest.substr(0, at))));
    rest.remove_prefix(at + sep.size());
  }
  parts.push_back(self.result(std::string(rest)));
  return self.list(std::move(parts));
}

Value rsplit_text(const TextSelf& self, const Args& args) {
  const Bound bound("rsplit", args, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  if (!bound[0] || bound[0]->is_none()) return split_at_space(self, limit, true);
  const std::string& sep = bound.text(0);
  if (sep.empty()) fail("empty separator");
  Values parts;
  std::string_view rest = self.text;
  for (size_t at; (at = find_last_text(rest, sep)) != rest.npos;) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) break;
    parts.push_back(self.result(std::string(rest.substr(at + sep.size()))));
    rest = rest.substr(0, at);
  }
  parts.push_back(self.result(std::string(rest)));
  std::reverse(parts.begin(), parts.end());
  return self.list(std::move(parts));
}

Value split_lines(const TextSelf& self, const Args& args) {
  const bool keep = Bound("splitlines", args, {"keepends"}).flag(0, false);
  Values lines;
  size_t start = 0;
  for (size_t at = 0; at < self.text.size();) {
    const size_t end = at;
    const char32_t c = utf8_next(self.text, &at);
    if (!ends_line(c) && at < self.text.size()) continue;
    if (c == '\r' && at < self.text.size() && self.text[at] == '\n') ++at;
    const size_t stop = keep || !ends_line(c) ? at : end;
    lines.push_back(self.result(std::string(self.text.substr(start, stop - start))));
    start = at;
  }
  return self.list(std::move(lines));
}

Value partition_text(const TextSelf& self, const Args& args) {
  return partitioned(self, args, false);
}
Value rpartition_text(const TextSelf& self, const Args& args) {
  return partitioned(self, args, true);
}

}  // namespace skiff::jinja
