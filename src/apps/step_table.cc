#include "apps/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "apps/args.h"

namespace skiff::apps {
namespace {

struct Term {
  int first = 0, last = 0, step = 1;
};

// Reads a number off the front of `text`. Returns false if there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool read_term(std::string_view text, Term& term) {
  if (!take_number(text, term.first)) return false;
  term.last = term.first;
  if (take(text, "..") && !take_number(text, term.last)) return false;
  if (take(text, ":") && !take_number(text, term.step)) return false;
  return text.empty();
}

}  // namespace

std::vector<int> numbers_in(std::string_view flag, std::string_view list, int most) {
  std::set<int> numbers;
  for (std::string_view rest = list;;) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    Term term;
    if (!read_term(word, term) || term.first < 1 || term.last < term.first || term.step < 1 ||
        term.last > most)
      throw UsageError(
          fmt::format("--{} has \"{}\"; it must be a list as in 1,8,64..2048:64 of numbers in "
                      "[1, {}]",
                      flag, word, most));
    for (int64_t n = term.first; n <= term.last; n += term.step)
      numbers.insert(static_cast<int>(n));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return {numbers.begin(), numbers.end()};
}

std::vector<double> above_line(const std::vector<TimedRows>& steps) {
  std::vector<double> above(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const TimedRows& at = steps[i];
    for (size_t a = i; a > 0 && 2 * steps[a - 1].rows >= at.rows; --a) {
      const TimedRows& fewer = steps[a - 1];
      for (size_t b = i + 1; b < steps.size() && steps[b].rows <= 2 * at.rows; ++b) {
        const double part = static_cast<double>(at.rows - fewer.rows) /
                            static_cast<double>(steps[b].rows - fewer.rows);
        const double line = fewer.seconds + part * (steps[b].seconds - fewer.seconds);
        above[i] = std::max(above[i], at.seconds / line - 1);
      }
    }
  }
  return above;
}

}  // namespace skiff::apps
