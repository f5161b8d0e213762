// Implements the filters from text to text.
#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

using namespace std::string_view_literals;
constexpr size_t npos = std::string_view::npos;

// Returns the input as str(); markup stays markup.
Value soft(Interpreter& in, const Value& input) {
  return input.is_text() ? input : Value(to_text(in.budget(), input));
}

// Applies a method of str to the input, which is converted to text first.
template <const char* const& name>
Value method(Interpreter& in, const Value& input, const Args& args) {
  return call_text_method(in, soft(in, input), name, args);
}
constexpr const char* kUpper = "upper";
constexpr const char* kLower = "lower";
constexpr const char* kCapitalize = "capitalize";

Value trim(Interpreter& in, const Value& input, const Args& args) {
  return call_text_method(in, soft(in, input), "strip", args);
}

// Implements Jinja's title, where words begin after white space, opening brackets and hyphens.
Value title(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("title", args);
  const std::string text = to_text(in.budget(), input);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    in.budget().step();
    const auto is_break = [](char32_t c) { return is_space(c) || U"-({[<"sv.find(c) != npos; };
    // Returns the end of the run from `begin` of characters that are breaks, or of those that are
    // not.
    const auto run = [&](size_t begin, bool breaks) {
      for (size_t next = begin; next < text.size(); begin = next)
        if (is_break(utf8_next(text, &next)) != breaks) return begin;
      return begin;
    };
    const size_t end = run(at, false), next = run(end, true);
    out += capitalize(std::string_view(text).substr(at, end - at));
    out.append(text, end, next - end);
    at = next;
  }
  return out;
}

Value replace(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"});
  Args plain;
  for (size_t i : {0, 1}) plain.positional.emplace_back(to_text(in.budget(), bound.need(i)));
  plain.positional.emplace_back(bound.integer(2, -1));
  return call_text_method(in, to_text(in.budget(), input), "replace", plain);
}

Value format(Interpreter& in, const Value& input, const Args& args) {
  const Value text = soft(in, input);
  if (!args.named.empty()) {
    if (!args.positional.empty()) fail("format: positional and keyword arguments together");
    Pairs items;
    for (const auto& [name, value] : args.named) {
      in.budget().make(64 + name.size());
      items.emplace_back(name, value);
    }
    return percent_format(in.budget(), *text.as_text(), Value::dict(in.budget(), std::move(items)));
  }
  return percent_format(in.budget(), *text.as_text(),
                        Value::seq(in.budget(), Seq::Form::kTuple, args.positional));
}

Value string(Interpreter& in, const Value& input, const Args&) { return soft(in, input); }

constexpr FilterEntry kFilters[] = {{"upper", method<kUpper>},
                                    {"lower", method<kLower>},
                                    {"capitalize", method<kCapitalize>},
                                    {"trim", trim},
                                    {"title", title},
                                    {"replace", replace},
                                    {"format", format},
                                    {"string", string}};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace skiff::jinja
