#include "model/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <memory>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::model {
namespace {

constexpr size_t kMaxPattern = 64 << 10;  // bytes
// A match is tried with one limit after the other and costs the last one, because the library does
// not say how many steps it took. Ordinary patterns take some fifty, those with several stars or a
// dozen alternatives up to a thousand. What goes far beyond weighs more than its time, so that a
// list of slow patterns is refused within a second.
struct Try {
  uint32_t limit;
  int64_t weight;
};
constexpr std::array<Try, 6> kTries = {
    {{64, 1}, {256, 1}, {1024, 1}, {4096, 1}, {65'536, 512}, {1'000'000, 512}}};
constexpr uint32_t kDepthLimit = 100'000, kHeapKiB = 16 << 10;
// Bytes of a name in which a text is searched for in about a step.
constexpr size_t kSearched = 16;

// Returns whether the dotted components of `run` follow each other in `name`.
bool has_components(std::string_view name, std::string_view run) {
  if (run.empty()) return false;
  for (size_t at = name.find(run); at != name.npos; at = name.find(run, at + 1)) {
    const size_t end = at + run.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

struct NamePattern::Program {
  Program() = default;
  Program(const Program&) = delete;
  ~Program() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

NamePattern::NamePattern(PatternKind kind, std::string text, const std::string& where)
    : kind_(kind), text_(std::move(text)), where_(where) {
  if (text_.size() > kMaxPattern)
    fail_load("{}: a pattern of {} bytes, the limit is {}", where, text_.size(), kMaxPattern);
  if (kind_ == PatternKind::kComponents && text_.ends_with('.')) text_.pop_back();
  if (kind_ != PatternKind::kRegex) return;
  auto program = std::make_shared<Program>();
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_parens_nest_limit(context, 64);
  int error = 0;
  PCRE2_SIZE at = 0;
  program->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
  pcre2_compile_context_free(context);
  if (!program->code)
    fail_load("{}: \"{}\" is no regular expression (at byte {})", where, escaped(text_), at);
  program_ = std::move(program);
}

bool NamePattern::matches(std::string_view name) const {
  MatchBudget budget;
  return matches(name, budget);
}

void NamePattern::charge(int64_t steps, std::string_view name, MatchBudget& budget) const {
  budget.steps -= steps;
  if (budget.steps < 0)
    fail_load(
        "{}: its patterns take too long together, the last one tried was \"{}\" on \"{}\"; write "
        "simpler ones or fewer",
        where_, escaped(text_, 200), escaped(name, 200));
}

bool NamePattern::matches(std::string_view name, MatchBudget& budget) const {
  charge(1, name, budget);
  switch (kind_) {
    case PatternKind::kAll:
      return true;
    case PatternKind::kName:
      return name.starts_with(text_) && (name.size() == text_.size() || name[text_.size()] == '.');
    case PatternKind::kSubstring:
      charge(static_cast<int64_t>(name.size() / kSearched), name, budget);
      return name.find(text_) != name.npos;
    case PatternKind::kComponents:
      charge(static_cast<int64_t>(name.size() / kSearched), name, budget);
      return has_components(name, text_);
    case PatternKind::kWildcard:
      return wildcard_matches(name, budget);
    case PatternKind::kRegex:
      break;
  }
  return regex_matches(name, budget);
}

bool NamePattern::wildcard_matches(std::string_view name, MatchBudget& budget) const {
  size_t p = 0, n = 0, star = text_.npos, resume = 0;
  for (; n < name.size(); charge(1, name, budget)) {
    if (p < text_.size() && text_[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < text_.size() && (text_[p] == '?' || text_[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != text_.npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  for (; p < text_.size() && text_[p] == '*'; ++p) charge(1, name, budget);
  return p == text_.size();
}

bool NamePattern::regex_matches(std::string_view name, MatchBudget& budget) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_depth_limit(limits.get(), kDepthLimit);
  pcre2_set_heap_limit(limits.get(), kHeapKiB);
  int result = PCRE2_ERROR_MATCHLIMIT;
  int64_t paid = 0;
  for (size_t i = 0; i < kTries.size() && result == PCRE2_ERROR_MATCHLIMIT; ++i) {
    const int64_t price = kTries[i].limit * kTries[i].weight;
    charge(price - std::exchange(paid, price), name, budget);
    pcre2_set_match_limit(limits.get(), kTries[i].limit);
    result = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                         0, found.get(), limits.get());
  }
  if (result < 0 && result != PCRE2_ERROR_NOMATCH)
    fail_load("{}: the pattern \"{}\" takes too long on \"{}\"; write a simpler one", where_,
              escaped(text_, 200), escaped(name, 200));
  return result >= 0;
}

}  // namespace skiff::model
