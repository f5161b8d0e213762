// Implements the methods of Python's str that templates call.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/search.h"
#include "text/jinja/text_method.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

using Method = Value (*)(const TextSelf& self, const Args& args);

template <Side side>
Value stripped(const TextSelf& self, const Args& args) {
  const std::string set = Bound("strip", args, {"chars"}).text(0, "");
  if (set.size() > 64) self.in.budget().step((self.text.size() / 64 + 1) * set.size());
  return self.result(std::string(strip(self.text, side, set)));
}

template <std::string (*map)(std::string_view)>
Value mapped(const TextSelf& self, const Args& args) {
  takes_nothing("case method", args);
  return self.result(map(self.text));
}

template <bool (*judge)(std::string_view)>
Value judged(const TextSelf& self, const Args& args) {
  takes_nothing("is method", args);
  return judge(self.text);
}

template <Class wanted>
Value all_are(const TextSelf& self, const Args& args) {
  takes_nothing("is method", args);
  return is_all(self.text, wanted);
}

// Returns the characters [start, end) of the text by the optional arguments of find() and others;
// `offset` becomes the index of the first one. Returns nullopt if the range begins behind the text.
std::optional<std::string_view> window(const TextSelf& self, const Bound& bound, int64_t* offset) {
  if (!bound[1] && !bound[2]) return *offset = 0, self.text;
  const auto n = static_cast<int64_t>(count_characters(self.text));
  const auto resolve = [&](size_t i, int64_t fallback) {
    const int64_t at = bound.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(at + n, 0) : at;
  };
  const int64_t start = resolve(1, 0), end = std::min(resolve(2, n), n);
  if (start > end) return std::nullopt;
  *offset = start;
  const size_t begin = character_offset(self.text, static_cast<size_t>(start));
  return self.text.substr(begin, character_offset(self.text, static_cast<size_t>(end)) - begin);
}

template <bool (*matches)(std::string_view text, std::string_view part)>
Value affix(const TextSelf& self, const Args& args) {
  const Bound bound("startswith/endswith", args, {"prefix", "start", "end"});
  int64_t offset;
  const auto text = window(self, bound, &offset);
  const Seq* several = bound.need(0).as_seq();
  if (!several) return matches(text.value_or(""), bound.text(0)) && text;
  if (several->form != Seq::Form::kTuple)
    fail("startswith/endswith needs a text or a tuple of texts, not {}", type_name(*bound[0]));
  return text && std::any_of(several->items.begin(), several->items.end(), [&](const Value& part) {
           if (!part.is_text()) fail("startswith/endswith needs texts, not {}", type_name(part));
           return matches(*text, *part.as_text());
         });
}
bool begins(std::string_view text, std::string_view part) { return text.starts_with(part); }
bool ends(std::string_view text, std::string_view part) { return text.ends_with(part); }

template <bool last, bool must>
Value position(const TextSelf& self, const Args& args) {
  const Bound bound("find", args, {"sub", "start", "end"});
  int64_t offset;
  const auto text = window(self, bound, &offset);
  const std::string& part = bound.text(0);
  size_t at = std::string_view::npos;
  if (text) at = last ? find_last_text(*text, part) : find_text(*text, part);
  if (at != text->npos) return offset + static_cast<int64_t>(count_characters(text->substr(0, at)));
  if (must) fail("substring not found");
  return int64_t{-1};
}

Value count(const TextSelf& self, const Args& args) {
  const Bound bound("count", args, {"sub", "start", "end"});
  int64_t offset, found = 0;
  const auto text = window(self, bound, &offset);
  const std::string& part = bound.text(0);
  if (!text) return int64_t{0};
  if (part.empty()) return static_cast<int64_t>(count_characters(*text)) + 1;
  for (std::string_view rest = *text;; ++found) {
    const size_t at = find_text(rest, part);
    if (at == rest.npos) return found;
    rest.remove_prefix(at + part.size());
  }
}

// Puts a copy of `to` before every character and at the end.
std::string interleaved(const TextSelf& self, const std::string& to, int64_t left) {
  std::string out;
  std::string_view rest = self.text;
  for (; left != 0; --left) {
    self.in.budget().make(to.size() + 1);
    out += to;
    if (rest.empty()) return out;
    const size_t n = character_length(rest);
    out += rest.substr(0, n);
    rest.remove_prefix(n);
  }
  return out.append(rest);
}

Value replace(const TextSelf& self, const Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"});
  std::string from = bound.text(0), to = bound.text(1);
  Budget& budget = self.in.budget();
  if (self.value.is_markup() && !bound[0]->is_markup()) from = escaped(budget, from);
  if (self.value.is_markup() && !bound[1]->is_markup()) to = escaped(budget, to);
  int64_t left = bound.integer(2, -1);
  if (from.empty()) return self.result(interleaved(self, to, left));
  std::string out;
  std::string_view rest = self.text;
  for (; left != 0; --left) {
    const size_t found = find_text(rest, from);
    if (found == rest.npos) break;
    self.in.budget().make(found + to.size() + 1);
    out.append(rest.substr(0, found)).append(to);
    rest.remove_prefix(found + from.size());
  }
  return self.result(out.append(rest));
}

Value join(const TextSelf& self, const Args& args) {
  const Values items = iterate(self.in.budget(), Bound("join", args, {"iterable"}).need(0));
  std::string out;
  for (const Value& item : items) {
    if (!item.is_text()) fail("join(): expected str, {} found", type_name(item));
    self.in.budget().make(self.text.size() + item.as_text()->size());
    if (&item != &items.front()) out += self.text;
    out += self.value.is_markup() && !item.is_markup() ? escaped(self.in.budget(), *item.as_text())
                                                       : *item.as_text();
  }
  return Value(std::move(out), self.value.is_markup());
}

template <bool suffix>
Value remove_affix(const TextSelf& self, const Args& args) {
  const std::string& part = Bound("removeprefix", args, {"affix"}).text(0);
  std::string_view text = self.text;
  if (suffix && text.ends_with(part)) text.remove_suffix(part.size());
  if (!suffix && text.starts_with(part)) text.remove_prefix(part.size());
  return self.result(std::string(text));
}

template <int left_share>  // the share of the padding, in halves
Value justified(const TextSelf& self, const Args& args) {
  const Bound bound("justify", args, {"width", "fillchar"});
  const std::string fill = bound.text(1, " ");
  if (count_characters(fill) != 1) fail("the fill character must be exactly one character long");
  const auto n = static_cast<int64_t>(count_characters(self.text));
  bound.need(0);
  const int64_t padding = std::max<int64_t>(0, bound.integer(0, 0) - n);
  self.in.budget().make_many(static_cast<uint64_t>(padding), fill.size());
  // Python's center() puts the extra character of an odd padding on the left if the width is odd.
  const int64_t left =
      left_share == 1 ? padding / 2 + (padding & (padding + n) & 1) : padding * left_share / 2;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text;
  for (int64_t i = left; i < padding; ++i) out += fill;
  return self.result(std::move(out));
}

Value zfill(const TextSelf& self, const Args& args) {
  const Bound bound("zfill", args, {"width"});
  bound.need(0);
  const int64_t width = bound.integer(0, 0);
  const auto n = static_cast<int64_t>(count_characters(self.text));
  const auto padding = static_cast<size_t>(std::max<int64_t>(0, width - n));
  self.in.budget().make(padding);
  const bool sign = self.text.starts_with('-') || self.text.starts_with('+');
  std::string out(self.text);
  return self.result(out.insert(sign ? 1 : 0, padding, '0'));
}

Value format(const TextSelf& self, const Args& args) {
  return self.result(brace_format(self.in, self.value, args));
}

Value format_map(const TextSelf& self, const Args& args) {
  const Bound bound("format_map", args, {"mapping"});
  if (!bound.need(0).as_dict()) fail("format_map() needs a mapping");
  Args named;
  for (const auto& [key, value] : bound[0]->as_dict()->items)
    if (key.is_text() && key.as_text()->size() <= kMaxName) {
      self.in.budget().make(sizeof(named.named[0]) + key.as_text()->size());
      named.named.emplace_back(*key.as_text(), value);
    }
  return self.result(brace_format(self.in, self.value, named));
}

Value expandtabs(const TextSelf& self, const Args& args) {
  const int64_t size = Bound("expandtabs", args, {"tabsize"}).integer(0, 8);
  std::string out;
  int64_t column = 0;
  for (std::string_view rest = self.text; !rest.empty();) {
    const size_t n = character_length(rest);
    if (rest[0] == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      self.in.budget().make(static_cast<uint64_t>(blanks));
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      out += rest.substr(0, n);
      column = rest[0] == '\n' || rest[0] == '\r' ? 0 : column + 1;
    }
    rest.remove_prefix(n);
  }
  return self.result(std::move(out));
}

// The table is a dict from code points to texts, code points or None.
Value translate(const TextSelf& self, const Args& args) {
  const Bound bound("translate", args, {"table"});
  const Dict* table = bound.need(0).as_dict();
  if (!table) fail("translate() needs a dict");
  std::string out;
  for (size_t at = 0; at < self.text.size();) {
    self.in.budget().step();
    const char32_t c = utf8_next(self.text, &at);
    const Value* to = find(self.in.budget(), *table, Value(int64_t{c}));
    int64_t code = c;
    if (to && to->is_none()) continue;
    if (to && to->is_text()) {
      self.in.budget().make(to->as_text()->size());
      out += *to->as_text();
      continue;
    }
    if (to && !is_integral(*to, &code)) fail("character mapping must return integer, None or str");
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail("character mapping must be in range(0x110000)");
    utf8_append(out, static_cast<char32_t>(code));
  }
  return self.result(std::move(out));
}

const std::unordered_map<std::string_view, Method>& methods() {
  static const std::unordered_map<std::string_view, Method> table = {
      {"strip", stripped<Side::kBoth>},
      {"lstrip", stripped<Side::kLeft>},
      {"rstrip", stripped<Side::kRight>},
      {"split", split_text},
      {"rsplit", rsplit_text},
      {"splitlines", split_lines},
      {"startswith", affix<begins>},
      {"endswith", affix<ends>},
      {"upper", mapped<to_upper>},
      {"lower", mapped<to_lower>},
      {"casefold", mapped<case_folded>},
      {"title", mapped<title_words>},
      {"capitalize", mapped<capitalize>},
      {"replace", replace},
      {"join", join},
      {"format", format},
      {"find", position<false, false>},
      {"rfind", position<true, false>},
      {"index", position<false, true>},
      {"rindex", position<true, true>},
      {"count", count},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"partition", partition_text},
      {"rpartition", rpartition_text},
      {"ljust", justified<0>},
      {"center", justified<1>},
      {"rjust", justified<2>},
      {"zfill", zfill},
      {"isalpha", all_are<Class::kAlpha>},
      {"isdigit", all_are<Class::kDigit>},
      {"isdecimal", all_are<Class::kDecimal>},
      {"isnumeric", all_are<Class::kNumeric>},
      {"isprintable", all_are<Class::kPrintable>},
      {"isascii", all_are<Class::kAscii>},
      {"istitle", judged<is_title>},
      {"isidentifier", judged<is_identifier>},
      {"swapcase", mapped<swap_case>},
      {"expandtabs", expandtabs},
      {"format_map", format_map},
      {"translate", translate},
      {"isalnum", all_are<Class::kAlnum>},
      {"isspace", all_are<Class::kSpace>},
      {"isupper", all_are<Class::kUpper>},
      {"islower", all_are<Class::kLower>}};
  return table;
}

}  // namespace

bool has_text_method(std::string_view name) { return methods().contains(name); }

std::vector<std::string_view> text_method_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, unused] : methods()) names.push_back(name);
  return names;
}

Value call_text_method(Interpreter& in, const Value& self, const std::string& name,
                       const Args& args) {
  return methods().at(name)({in, self, *self.as_text()}, args);
}

}  // namespace skiff::jinja
