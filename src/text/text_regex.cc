#include "text/text_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/utf8.h"
#include "text/regex_dialect.h"

namespace skiff::text {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 10'000'000, kDepthLimit = 1'000'000, kHeapKiB = 64 << 10;

std::string message_of(int code) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct TextRegex::Program {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  bool jit = false;

  Program() = default;
  Program(const Program&) = delete;
  ~Program() {
    pcre2_code_free(code);
    pcre2_match_context_free(limits);
  }
};

Result<TextRegex> TextRegex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern)
    return Error{Code::kUnsupported,
                 fmt::format("pattern of {} bytes, the limit is {}", pattern.size(), kMaxPattern)};
  const auto translated = translate_oniguruma(pattern);
  if (!translated) return translated.error();
  auto program = std::make_shared<Program>();
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 64);
  int error = 0;
  PCRE2_SIZE where = 0;
  // PCRE2_MULTILINE: ^ and $ of Ruby always mean lines.
  program->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &where, context);
  pcre2_compile_context_free(context);
  if (!program->code)
    return Error{Code::kUnsupported, fmt::format("pattern \"{}\": {} at {}", pattern.substr(0, 200),
                                                 message_of(error), where)};
  program->jit = pcre2_jit_compile(program->code, PCRE2_JIT_COMPLETE) == 0;
  program->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(program->limits, kMatchLimit);
  pcre2_set_depth_limit(program->limits, kDepthLimit);
  pcre2_set_heap_limit(program->limits, kHeapKiB);
  TextRegex out;
  out.program_ = std::move(program);
  return out;
}

struct TextRegex::Scan::Scratch {
  pcre2_match_data* data;
};

TextRegex::Scan::Scan(const TextRegex& regex)
    : regex_(regex), scratch_(new Scratch{pcre2_match_data_create(1, nullptr)}) {}

TextRegex::Scan::~Scan() { pcre2_match_data_free(scratch_->data); }

void TextRegex::Scan::find_all(std::string_view text, std::vector<TextRange>& matches) {
  const Program& program = *regex_.program_;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->data);
  for (size_t at = 0; at < text.size();) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (program.jit)
      found = pcre2_jit_match(program.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                              scratch_->data, program.limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
      found = pcre2_match(program.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          scratch_->data, program.limits);
    if (found < 0) return;
    // \K inside a lookahead can put a match's start behind its end or before the search.
    if (bounds[0] < at || bounds[1] < bounds[0]) return;
    if (bounds[1] > bounds[0]) {
      matches.push_back({bounds[0], bounds[1]});
      at = bounds[1];
    } else {
      at = bounds[1];
      if (at < text.size()) utf8_next(text, &at);
    }
  }
}

}  // namespace skiff::text
