// Filters from text to text.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

// The input as str(), still markup if it was.
Value soft(Interpreter& in, const Value& input) {
  return input.is_text() ? input : Value(to_text(in.budget(), input));
}

// A method of str applied to the input, which need not be a text yet.
template <const char* const& name>
Value method(Interpreter& in, const Value& input, Args args) {
  return call_text_method(in, soft(in, input), name, std::move(args));
}
constexpr const char* kUpper = "upper";
constexpr const char* kLower = "lower";
constexpr const char* kCapitalize = "capitalize";

Value trim(Interpreter& in, const Value& input, Args args) {
  return call_text_method(in, soft(in, input), "strip", std::move(args));
}

// Jinja's idea of a title: words begin after white space and opening brackets or hyphens.
Value title(Interpreter& in, const Value& input, Args args) {
  Bound("title", args, {});
  const std::string text = to_text(in.budget(), input);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto is_break = [&](size_t i) {
      const std::string_view c =
          std::string_view(text).substr(i, character_length(std::string_view(text).substr(i)));
      return std::string_view("-({[<").find(c[0]) != std::string_view::npos ||
             strip(c, Side::kBoth).empty();
    };
    size_t end = at;
    while (end < text.size() && !is_break(end))
      end += character_length(std::string_view(text).substr(end));
    out += capitalize(std::string_view(text).substr(at, end - at));
    for (at = end; at < text.size() && is_break(at);) {
      const size_t n = character_length(std::string_view(text).substr(at));
      out += text.substr(at, n);
      at += n;
    }
  }
  return out;
}

Value replace(Interpreter& in, const Value& input, Args args) {
  const Bound bound("replace", args, {"old", "new", "count"});
  Args plain;
  for (size_t i : {0, 1}) plain.positional.emplace_back(to_text(in.budget(), bound.need(i)));
  plain.positional.emplace_back(bound.integer(2, -1));
  return call_text_method(in, to_text(in.budget(), input), "replace", std::move(plain));
}

Value indent(Interpreter& in, const Value& input, Args args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  const std::string pad = bound[0] && bound[0]->is_text()
                              ? *bound[0]->as_text()
                              : std::string(std::clamp<int64_t>(bound.integer(0, 4), 0, 1000), ' ');
  if (!input.is_text()) fail("indent needs a text, not {}", type_name(input));
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

Value truncate(Interpreter& in, const Value& input, Args args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const Value text = soft(in, input);
  const std::string end = bound.text(2, "...");
  const int64_t wanted = bound.integer(0, 255);
  const auto n = static_cast<int64_t>(count_characters(*text.as_text()));
  const auto end_length = static_cast<int64_t>(count_characters(end));
  if (wanted < end_length) fail("truncate: expected length >= {}, got {}", end_length, wanted);
  if (n <= wanted + bound.integer(3, 5)) return text;
  std::string kept = text.as_text()->substr(
      0, character_offset(*text.as_text(), static_cast<size_t>(wanted - end_length)));
  if (!bound.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return kept + end;
}

Value wordcount(Interpreter& in, const Value& input, Args) {
  const Value words = call_text_method(in, soft(in, input), "split", {});
  return static_cast<int64_t>(words.as_seq()->items.size());
}

Value center(Interpreter& in, const Value& input, Args args) {
  const Bound bound("center", args, {"width"});
  Args width;
  width.positional.emplace_back(bound.integer(0, 80));
  return call_text_method(in, soft(in, input), "center", std::move(width));
}

Value format(Interpreter& in, const Value& input, Args args) {
  const Value text = soft(in, input);
  if (!args.named.empty()) {
    if (!args.positional.empty()) fail("format: positional and keyword arguments together");
    Pairs items;
    for (auto& [name, value] : args.named) items.emplace_back(name, std::move(value));
    return percent_format(in.budget(), *text.as_text(), Value::dict(in.budget(), std::move(items)));
  }
  return percent_format(in.budget(), *text.as_text(),
                        Value::seq(in.budget(), Seq::Form::kTuple, std::move(args.positional)));
}

Value escape(Interpreter& in, const Value& input, Args) {
  if (input.is_markup()) return input;
  return Value(escaped(to_text(in.budget(), input)), true);
}

Value force_escape(Interpreter& in, const Value& input, Args) {
  return Value(escaped(to_text(in.budget(), input)), true);
}

Value safe(Interpreter& in, const Value& input, Args) {
  return Value(to_text(in.budget(), input), true);
}

Value string(Interpreter& in, const Value& input, Args) { return soft(in, input); }

Value urlencode(Interpreter& in, const Value& input, Args) {
  std::string out;
  if (input.as_dict() || input.as_seq()) fail("urlencode: only texts are supported");
  const std::string text = to_text(in.budget(), input);
  in.budget().make(3 * text.size());
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       (c != '\0' && std::string_view("_.-~/").find(c) != std::string_view::npos);
    if (plain)
      out += c;
    else
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

constexpr FilterEntry kFilters[] = {{"upper", method<kUpper>},
                                    {"lower", method<kLower>},
                                    {"capitalize", method<kCapitalize>},
                                    {"trim", trim},
                                    {"title", title},
                                    {"replace", replace},
                                    {"indent", indent},
                                    {"truncate", truncate},
                                    {"wordcount", wordcount},
                                    {"center", center},
                                    {"format", format},
                                    {"e", escape},
                                    {"escape", escape},
                                    {"forceescape", force_escape},
                                    {"safe", safe},
                                    {"string", string},
                                    {"urlencode", urlencode}};

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '\'')
      out += "&#39;";
    else if (c == '"')
      out += "&#34;";
    else
      out += c;
  }
  return out;
}

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace skiff::jinja
