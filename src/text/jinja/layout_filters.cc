// Implements the filters that lay out text: lines, widths, units.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/pretty.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"
#include "text/jinja/word_wrap.h"

namespace skiff::jinja {
namespace {

Value indent(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  const std::string pad = blanks_or_text(in, bound, 0, 4);
  if (!input.is_text()) fail("indent needs a text, not {}", type_name(input));
  in.budget().make(input.as_text()->size() + 1);
  const Value text(*input.as_text() + "\n", input.is_markup());
  const Value lines = call_text_method(in, text, "splitlines", {});
  const bool blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? pad : "";
  bool first = true;
  for (const Value& line : lines.as_seq()->items) {
    in.budget().make(pad.size() + line.as_text()->size());
    if (!first) out += '\n';
    if (!first && (blank || !line.as_text()->empty())) out += pad;
    out += *line.as_text();
    first = false;
  }
  return Value(std::move(out), input.is_markup());
}

Value truncate(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string text = to_text(in.budget(), input);
  const std::string end = bound.text(2, "...");
  const int64_t wanted = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const auto n = static_cast<int64_t>(count_characters(text));
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (wanted < end_length) fail("truncate: expected length >= {}, got {}", end_length, wanted);
  if (leeway < 0) fail("truncate: expected leeway >= 0, got {}", leeway);
  if (leeway >= n || n <= wanted + leeway) return Value(text, input.is_markup());
  std::string kept =
      text.substr(0, character_offset(text, static_cast<size_t>(wanted - end_length)));
  if (!bound.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return kept + end;
}

Value wordcount(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("wordcount", args);
  const std::string text = to_text(in.budget(), input);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word(utf8_next(text, &at));
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value wordwrap(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("wordwrap", args,
                    {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  const int64_t width = bound.integer(0, 79);
  if (width <= 0) fail("wordwrap: invalid width {} (must be > 0)", width);
  if (!input.is_text()) fail("wordwrap needs a text, not {}", type_name(input));
  const std::string newline = bound.text(2, "\n");
  const WrapStyle style{static_cast<size_t>(width), bound.flag(1, true), bound.flag(3, true)};
  in.budget().make(input.as_text()->size());
  const Value lines = call_text_method(in, Value(*input.as_text()), "splitlines", {});
  std::string out;
  bool first = true;
  const auto add = [&](std::string_view piece) {
    in.budget().make(newline.size() + piece.size());
    if (!std::exchange(first, false)) out += newline;
    out += piece;
  };
  for (const Value& line : lines.as_seq()->items) {
    const auto pieces = wrapped(in.budget(), *line.as_text(), style);
    for (const std::string_view piece : pieces) add(piece);
    if (pieces.empty()) add("");
  }
  return out;
}

Value center(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("center", args, {"width"});
  Args width;
  width.positional.emplace_back(bound.integer(0, 80));
  return call_text_method(in, Value(to_text(in.budget(), input), input.is_markup()), "center",
                          width);
}

Value filesizeformat(Interpreter& in, const Value& input, const Args& args) {
  const bool binary = Bound("filesizeformat", args, {"binary"}).flag(0, false);
  double bytes = 0;
  const Value number = apply_filter(in, "float", input, {});
  const Value other = apply_filter(in, "float", input, {{Value(1.0)}, {}});
  if (!is_number(number, &bytes) || !equal(in.budget(), number, other) || std::isnan(bytes))
    fail("filesizeformat needs a number, not {}", type_name(input));
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return fmt::format("{:.0f} Bytes", std::trunc(bytes));
  const std::string_view prefixes = binary ? "KMGTPEZY" : "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < prefixes.size() && bytes >= unit; ++i) unit *= base;
  return fmt::format("{:.1f} {}{}", base * bytes / unit, prefixes[i], binary ? "iB" : "B");
}

Value pprint(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("pprint", args);
  return pretty(in.budget(), input);
}

constexpr FilterEntry kFilters[] = {{"indent", indent},       {"truncate", truncate},
                                    {"wordcount", wordcount}, {"wordwrap", wordwrap},
                                    {"center", center},       {"filesizeformat", filesizeformat},
                                    {"pprint", pprint}};

}  // namespace

std::string blanks_or_text(Interpreter& in, const Bound& bound, size_t i, int64_t fallback) {
  if (bound[i] && bound[i]->is_text()) return *bound[i]->as_text();
  const auto n = static_cast<size_t>(std::max<int64_t>(bound.integer(i, fallback), 0));
  in.budget().make(n);
  return std::string(n, ' ');
}

std::span<const FilterEntry> layout_filters() { return kFilters; }

}  // namespace skiff::jinja
