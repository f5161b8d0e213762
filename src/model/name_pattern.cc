#include "model/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <memory>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::model {
namespace {

constexpr size_t kMaxPattern = 64 << 10;  // bytes
// A match is tried with the first limit and again with the next one, because the library does not
// say how many steps a match took. Ordinary patterns stay far below the first, also with several
// stars.
constexpr std::array<uint32_t, 3> kMatchLimits = {4'096, 65'536, 1'000'000};
constexpr uint32_t kDepthLimit = 100'000, kHeapKiB = 16 << 10;

// Time is bounded by the product of both lengths.
bool wildcard_matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = pattern.npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Whether the dotted components of `run` follow each other in `name`.
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
  pcre2_code* code = nullptr;
  std::array<pcre2_match_context*, kMatchLimits.size()> limits{};
  std::string where;

  Program() = default;
  Program(const Program&) = delete;
  ~Program() {
    pcre2_code_free(code);
    for (pcre2_match_context* limit : limits) pcre2_match_context_free(limit);
  }
};

NamePattern::NamePattern(PatternKind kind, std::string text, const std::string& where)
    : kind_(kind), text_(std::move(text)) {
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
  for (size_t i = 0; i < kMatchLimits.size(); ++i) {
    program->limits[i] = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(program->limits[i], kMatchLimits[i]);
    pcre2_set_depth_limit(program->limits[i], kDepthLimit);
    pcre2_set_heap_limit(program->limits[i], kHeapKiB);
  }
  program->where = where;
  program_ = std::move(program);
}

bool NamePattern::matches(std::string_view name) const {
  MatchBudget budget;
  return matches(name, budget);
}

bool NamePattern::matches(std::string_view name, MatchBudget& budget) const {
  switch (kind_) {
    case PatternKind::kAll:
      return true;
    case PatternKind::kName:
      return name.starts_with(text_) && (name.size() == text_.size() || name[text_.size()] == '.');
    case PatternKind::kSubstring:
      return name.find(text_) != name.npos;
    case PatternKind::kComponents:
      return has_components(name, text_);
    case PatternKind::kWildcard:
      return wildcard_matches(text_, name);
    case PatternKind::kRegex:
      break;
  }
  return regex_matches(name, budget);
}

bool NamePattern::regex_matches(std::string_view name, MatchBudget& budget) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  int result = PCRE2_ERROR_MATCHLIMIT;
  for (size_t i = 0; i < kMatchLimits.size() && result == PCRE2_ERROR_MATCHLIMIT; ++i) {
    if (i > 0) budget.steps -= kMatchLimits[i];
    if (budget.steps < 0)
      fail_load(
          "{}: its patterns take too long together, the last one tried was \"{}\" on \"{}\"; write "
          "simpler ones",
          program_->where, escaped(text_, 200), escaped(name, 200));
    result = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                         0, found.get(), program_->limits[i]);
  }
  if (result < 0 && result != PCRE2_ERROR_NOMATCH)
    fail_load("{}: the pattern \"{}\" takes too long on \"{}\"; write a simpler one",
              program_->where, escaped(text_, 200), escaped(name, 200));
  return result >= 0;
}

}  // namespace skiff::model
