// Implements the filter that turns addresses in a text into HTML links.
#include <algorithm>
#include <set>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

using View = std::string_view;

template <class Holds>
bool all_of(View text, Holds holds) {
  for (size_t at = 0; at < text.size();)
    if (!holds(utf8_next(text, &at))) return false;
  return true;
}

bool is_digits(View text, size_t most) {
  return !text.empty() && text.size() <= most &&
         all_of(text, [](char32_t c) { return c >= '0' && c <= '9'; });
}
bool is_label(View text) {
  return !text.empty() &&
         all_of(text, [](char32_t c) { return is_word(c) || c == '%' || c == '-'; });
}

std::vector<View> parts_of(View text, char separator) {
  std::vector<View> out;
  for (size_t at; (at = text.find(separator)) != text.npos; text.remove_prefix(at + 1))
    out.push_back(text.substr(0, at));
  out.push_back(text);
  return out;
}

bool is_top_level(View name) {
  if (name.starts_with("xn--")) {
    const View rest = name.substr(4);
    const size_t n = count_characters(rest);
    if (n >= 2 && n <= 59 && all_of(rest, [](char32_t c) { return is_word(c) || c == '%'; }))
      return true;
  }
  return name.size() >= 2 && name.size() <= 63 &&
         all_of(name, [](char32_t c) { return c >= 'a' && c <= 'z'; });
}

bool is_common_top_level(View name) {
  constexpr View kNames[] = {"com", "net", "int", "edu", "gov", "org", "info", "mil"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool is_ip4(View host) {
  const auto parts = parts_of(host, '.');
  return parts.size() == 4 &&
         std::all_of(parts.begin(), parts.end(), [](View part) { return is_digits(part, 3); });
}

// Accepts an IPv6 address in brackets with three to eight groups.
bool is_ip6(View host) {
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  const auto parts = parts_of(host.substr(1, host.size() - 2), ':');
  return parts.size() >= 3 && parts.size() <= 9 &&
         std::all_of(parts.begin(), parts.end(), [](View part) {
           return part.size() <= 4 && part.find_first_not_of("0123456789abcdef") == part.npos;
         });
}

// Accepts a host name that follows a scheme, or the "www." that stands for one.
bool is_host(View host) {
  const auto parts = parts_of(host, '.');
  return is_top_level(parts.back()) && std::all_of(parts.begin(), parts.end() - 1, is_label);
}

bool is_bare_host(View host) {
  const auto parts = parts_of(host, '.');
  return parts.size() >= 2 && is_common_top_level(parts.back()) &&
         std::all_of(parts.begin(), parts.end() - 1, [](View part) {
           const size_t n = count_characters(part);
           return is_label(part) && n >= 2 && n <= 63;
         });
}

bool is_url(const std::string& word) {
  const std::string lower = to_lower(word);
  View rest = lower;
  const bool http = rest.starts_with("http://") || rest.starts_with("https://");
  if (http) rest.remove_prefix(rest.find("//") + 2);
  const size_t bracket = rest.starts_with('[') ? std::min(rest.find(']'), rest.size()) : 0;
  const View host = rest.substr(0, std::min(rest.find_first_of(":/?#", bracket), rest.size()));
  rest.remove_prefix(host.size());
  if (rest.starts_with(':')) {
    const View port = rest.substr(1, std::min(rest.find_first_of("/?#"), rest.size()) - 1);
    if (!is_digits(port, 5)) return false;
  }
  if (http && (is_host(host) || is_ip4(host) || is_ip6(host))) return true;
  return (!http && host.starts_with("www.") && is_host(host.substr(4))) ||
         (!http && is_bare_host(host));
}

bool is_email(View word) {
  const size_t at = word.rfind('@');
  if (at == word.npos || at == 0) return false;
  const View host = word.substr(at + 1);
  const size_t dot = host.rfind('.');
  if (dot == host.npos || dot == 0) return false;
  size_t next = 0;
  const bool starts = is_word(utf8_next(host, &next));
  return starts && dot + 1 < host.size() && all_of(host.substr(dot + 1), is_word) &&
         all_of(host.substr(0, dot), [](char32_t c) { return is_word(c) || c == '.' || c == '-'; });
}

struct Style {
  int64_t limit = -1;  // characters of the visible address
  std::string attributes;
  std::vector<std::string> schemes;
};

std::string shown(const std::string& url, const Style& style) {
  if (style.limit < 0 || static_cast<int64_t>(count_characters(url)) <= style.limit) return url;
  return url.substr(0, character_offset(url, static_cast<size_t>(style.limit))) + "...";
}

std::string linked(const std::string& word, const Style& style) {
  const auto link = [&](const std::string& to, const std::string& text) {
    return "<a href=\"" + to + "\"" + style.attributes + ">" + text + "</a>";
  };
  if (is_url(word)) {
    const bool http = word.starts_with("http://") || word.starts_with("https://");
    return link(http ? word : "https://" + word, shown(word, style));
  }
  if (word.starts_with("mailto:") && is_email(View(word).substr(7)))
    return "<a href=\"" + word + "\">" + word.substr(7) + "</a>";
  const bool plain =
      !word.starts_with("www.") && !word.starts_with("@") && word.find(':') == word.npos;
  if (plain && is_email(word)) return "<a href=\"mailto:" + word + "\">" + word + "</a>";
  for (const std::string& scheme : style.schemes)
    if (word != scheme && word.starts_with(scheme)) return link(word, word);
  return word;
}

size_t occurrences(View text, View part) {
  size_t n = 0;
  for (size_t at; (at = text.find(part)) != text.npos; ++n) text.remove_prefix(at + part.size());
  return n;
}

// Opening marks before the address and punctuation behind it stay outside the link, but a closing
// mark that has its partner inside belongs to it.
std::string one_word(View word, const Style& style) {
  constexpr View kOpening[] = {"(", "<", "&lt;"};
  constexpr View kClosing[] = {")", ">", ".", ",", "\n", "&gt;"};
  size_t begin = 0, end = word.size();
  const auto skip = [&](View mark) {
    const bool found = word.substr(begin).starts_with(mark);
    begin += found ? mark.size() : 0;
    return found;
  };
  const auto drop = [&](View mark) {
    const bool found = word.substr(begin, end - begin).ends_with(mark);
    end -= found ? mark.size() : 0;
    return found;
  };
  while (std::any_of(std::begin(kOpening), std::end(kOpening), skip)) continue;
  while (std::any_of(std::begin(kClosing), std::end(kClosing), drop)) continue;
  constexpr std::pair<View, View> kPairs[] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  for (const auto& [open, close] : kPairs) {
    const View middle = word.substr(begin, end - begin);
    const size_t opened = occurrences(middle, open);
    if (opened <= occurrences(middle, close)) continue;
    for (size_t n = std::min(opened, occurrences(word.substr(end), close)); n > 0; --n)
      end = word.find(close, end) + close.size();
  }
  return std::string(word.substr(0, begin)) +
         linked(std::string(word.substr(begin, end - begin)), style) +
         std::string(word.substr(end));
}

void check_scheme(View scheme) {
  const size_t colon = scheme.find(':');
  const bool valid =
      colon != scheme.npos && count_characters(scheme.substr(0, colon)) >= 2 &&
      all_of(scheme.substr(0, colon),
             [](char32_t c) { return is_word(c) || c == '.' || c == '+' || c == '-'; }) &&
      scheme.size() - colon <= 3 && scheme.find_first_not_of('/', colon + 1) == scheme.npos;
  if (!valid) fail("urlize: '{}' is not a valid URI scheme prefix", excerpt(scheme));
}

// Returns the sorted words of rel, with those of the policy added.
std::string rel_words(Budget& budget, const std::string& given, bool nofollow) {
  std::set<std::string> words = {"noopener"};
  if (nofollow) words.insert("nofollow");
  View rest = strip(given, Side::kBoth);
  while (!rest.empty()) {
    const size_t n = std::min(rest.find_first_of(" \t\n\r\f\v"), rest.size());
    budget.make(96 + n);
    words.emplace(rest.substr(0, n));
    rest = strip(rest.substr(n), Side::kLeft);
  }
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

Value urlize(Interpreter& in, const Value& input, const Args& args) {
  const Bound bound("urlize", args,
                    {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"});
  Style style;
  style.limit = bound.integer(0, -1);
  style.attributes =
      " rel=\"" +
      escaped(in.budget(), rel_words(in.budget(), bound.text(3, ""), bound.flag(1, false))) + "\"";
  if (const std::string target = bound.text(2, ""); !target.empty())
    style.attributes += " target=\"" + escaped(in.budget(), target) + "\"";
  if (bound[4] && !bound[4]->is_none())
    for (const Value& scheme : iterate(in.budget(), *bound[4])) {
      if (!scheme.is_text()) fail("urlize: a scheme must be a text");
      check_scheme(*scheme.as_text());
      style.schemes.push_back(*scheme.as_text());
    }
  const std::string plain = to_text(in.budget(), input);
  const std::string text = input.is_markup() ? plain : escaped(in.budget(), plain);
  std::string out;
  size_t start = 0;
  const auto flush = [&](size_t end) {
    // Charges for the parts of an address, its copies, and a comparison with each scheme.
    in.budget().make(24 * (end - start) + style.attributes.size());
    in.budget().step(style.schemes.size() * (1 + (end - start) / 64));
    if (end > start) out += one_word(View(text).substr(start, end - start), style);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (!is_space(utf8_next(text, &at))) continue;
    flush(here);
    out += View(text).substr(here, at - here);
    start = at;
  }
  flush(text.size());
  return out;
}

}  // namespace skiff::jinja
