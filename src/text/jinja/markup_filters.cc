// Implements the filters for HTML and URLs.
#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

Value escape(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("escape", args);
  if (input.is_markup()) return input;
  return Value(escaped(in.budget(), to_text(in.budget(), input)), true);
}

Value force_escape(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("forceescape", args);
  return Value(escaped(in.budget(), to_text(in.budget(), input)), true);
}

Value safe(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("safe", args);
  return Value(to_text(in.budget(), input), true);
}

std::string escaped_once(Interpreter& in, const Value& value) {
  const std::string text = to_text(in.budget(), value);
  return value.is_markup() ? text : escaped(in.budget(), text);
}

bool is_one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

Value xmlattr(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("xmlattr", args, {"autospace"});
  if (!input.as_dict()) fail("xmlattr needs a mapping, not {}", type_name(input));
  std::string out;
  for (const auto& [key, value] : input.as_dict()->items) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_text()) fail("xmlattr: a name of type {}", type_name(key));
    in.budget().step(key.as_text()->size() / 64);
    for (std::string_view rest = *key.as_text(); !rest.empty();) {
      const size_t n = character_length(rest);
      if (strip(rest.substr(0, n), Side::kBoth).empty() || is_one_of(rest[0], "/>="))
        fail("invalid character in attribute name: {}", excerpt(repr(in.budget(), key)));
      rest.remove_prefix(n);
    }
    if (!out.empty() || bound.flag(0, true)) out += ' ';
    out += escaped_once(in, key) + "=\"" + escaped_once(in, value) + "\"";
  }
  return out;
}

void append_quoted(std::string& out, std::string_view text, bool query) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain)
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += {'%', kHex[static_cast<unsigned char>(c) >> 4], kHex[c & 15]};
  }
}

Value urlencode(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("urlencode", args);
  std::string out;
  const auto quote = [&](const Value& value, bool query) {
    const std::string text = to_text(in.budget(), value);
    in.budget().make(3 * text.size());
    append_quoted(out, text, query);
  };
  const auto pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    quote(key, true);
    out += '=';
    quote(value, true);
  };
  if (const Dict* dict = input.as_dict()) {
    for (const auto& [key, value] : dict->items) pair(key, value);
  } else if (input.as_seq()) {
    for (const Value& item : iterate(in.budget(), input)) {
      const Values two = iterate(in.budget(), item);
      if (two.size() != 2) fail("urlencode needs pairs, not {} values", two.size());
      pair(two[0], two[1]);
    }
  } else {
    quote(input, false);
  }
  return out;
}

std::string with_single_blanks(std::string_view text) {
  std::string out;
  bool blank = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (is_space(c)) {
      blank = true;
      continue;
    }
    if (blank && !out.empty()) out += ' ';
    blank = false;
    utf8_append(out, c);
  }
  return out;
}

// Removes everything from `begin` to `end`, both included; an unclosed part stays.
std::string without(std::string_view text, std::string_view begin, std::string_view end) {
  std::string out;
  while (!text.empty()) {
    const size_t open = find_text(text, begin);
    const size_t close = open == text.npos ? open : find_text(text.substr(open), end);
    if (close == text.npos) break;
    out += text.substr(0, open);
    text.remove_prefix(open + close + end.size());
  }
  return out.append(text);
}

// Returns the character that "#39" or "amp" stands for; 0 if unknown. HTML 5 has 2000 names; known
// here are those of XML and the no-break space.
char32_t entity(std::string_view name) {
  constexpr std::pair<std::string_view, char32_t> kNames[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xa0}};
  for (const auto& [known, c] : kNames)
    if (known == name) return c;
  if (!name.starts_with('#')) return 0;
  name.remove_prefix(1);
  const bool hex = name.starts_with('x') || name.starts_with('X');
  if (hex) name.remove_prefix(1);
  uint32_t code = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
  const bool valid = read.ec == std::errc() && read.ptr == name.data() + name.size() &&
                     code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000);
  return valid ? code : 0;
}

std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t open = std::min(text.find('&'), text.size());
    out += text.substr(0, open);
    text.remove_prefix(open);
    const size_t close = text.substr(0, 16).find(';');
    const char32_t c = close == text.npos ? 0 : entity(text.substr(1, close - 1));
    if (c) utf8_append(out, c);
    if (!c) out += text.substr(0, 1);
    text.remove_prefix(c ? close + 1 : std::min<size_t>(1, text.size()));
  }
  return out;
}

Value striptags(Interpreter& in, const Value& input, const Args& args) {
  takes_nothing("striptags", args);
  std::string text = to_text(in.budget(), input);
  const auto apply = [&](auto step) {
    text = step(text);
    in.budget().make(text.size());
  };
  apply(with_single_blanks);
  apply([](std::string_view t) { return without(t, "<!--", "-->"); });
  apply([](std::string_view t) { return without(t, "<", ">"); });
  apply(with_single_blanks);
  apply(unescaped);
  return text;
}

constexpr FilterEntry kFilters[] = {
    {"e", escape},      {"escape", escape},       {"forceescape", force_escape},
    {"safe", safe},     {"striptags", striptags}, {"urlencode", urlencode},
    {"urlize", urlize}, {"xmlattr", xmlattr}};

}  // namespace

std::string escaped(Budget& budget, std::string_view text) {
  const auto marks = std::count_if(text.begin(), text.end(), [](char c) {
    return c == '&' || c == '<' || c == '>' || c == '\'' || c == '"';
  });
  const size_t size = text.size() + 4 * static_cast<size_t>(marks);
  budget.make(size);
  std::string out;
  out.reserve(size);
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

std::span<const FilterEntry> markup_filters() { return kFilters; }

}  // namespace skiff::jinja
