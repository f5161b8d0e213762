#include "model/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::model {
namespace {

constexpr size_t kMaxPattern = 64 << 10;  // bytes
constexpr uint32_t kMatchLimit = 1'000'000, kDepthLimit = 100'000, kHeapKiB = 16 << 10;

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

}  // namespace

struct NamePattern::Program {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;

  Program() = default;
  Program(const Program&) = delete;
  ~Program() {
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
  }
};

NamePattern::NamePattern(PatternKind kind, std::string text, const std::string& where)
    : kind_(kind), text_(std::move(text)) {
  if (text_.size() > kMaxPattern)
    fail_load("{}: a pattern of {} bytes, the limit is {}", where, text_.size(), kMaxPattern);
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
  program->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(program->limits, kMatchLimit);
  pcre2_set_depth_limit(program->limits, kDepthLimit);
  pcre2_set_heap_limit(program->limits, kHeapKiB);
  program_ = std::move(program);
}

bool NamePattern::matches(std::string_view name) const {
  switch (kind_) {
    case PatternKind::kAll:
      return true;
    case PatternKind::kName:
      return name.starts_with(text_) && (name.size() == text_.size() || name[text_.size()] == '.');
    case PatternKind::kSubstring:
      return name.find(text_) != name.npos;
    case PatternKind::kWildcard:
      return wildcard_matches(text_, name);
    case PatternKind::kRegex:
      break;
  }
  pcre2_match_data* found = pcre2_match_data_create(1, nullptr);
  const int result = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(name.data()),
                                 name.size(), 0, 0, found, program_->limits);
  pcre2_match_data_free(found);
  if (result < 0 && result != PCRE2_ERROR_NOMATCH)
    fail_load("the pattern \"{}\" takes too long on \"{}\"; write a simpler one", escaped(text_),
              escaped(name));
  return result >= 0;
}

}  // namespace skiff::model
