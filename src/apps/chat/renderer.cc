#include "apps/chat/renderer.h"

#include <algorithm>

#include "base/utf8.h"

namespace skiff::apps {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

// The "control pictures" block has a picture for each C0 character and one for DEL.
char32_t picture(char32_t control) {
  if (control < 0x20) return 0x2400 + control;
  return control == 0x7F ? 0x2421 : 0xFFFD;
}

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

// Returns how many bytes at the end of `text` may be the beginning of `tag`.
size_t unfinished_tag(std::string_view text, std::string_view tag) {
  for (size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length)
    if (text.ends_with(tag.substr(0, length))) return length;
  return 0;
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (c == '\r') continue;
    utf8_append(out, is_control(c) && c != '\n' && c != '\t' ? picture(c) : c);
  }
  return out;
}

AnswerRenderer::AnswerRenderer(bool styled, bool thinking)
    : where_(thinking ? Where::kThinking : Where::kStart), styled_(styled) {}

std::string AnswerRenderer::push(std::string_view piece) {
  if (!styled_) return terminal_safe(piece);
  held_ += piece;
  return styled();
}

std::string AnswerRenderer::finish() {
  std::string out = terminal_safe(held_);
  held_.clear();
  if (dim_) out += kPlain;
  dim_ = false;
  return out;
}

std::string AnswerRenderer::styled() {
  std::string out;
  if (where_ == Where::kStart) {
    const size_t begin = held_.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) return out;
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return out;
    where_ = rest.starts_with(kOpen) ? Where::kThinking : Where::kAnswer;
    if (where_ == Where::kThinking) held_.erase(0, begin + kOpen.size());
  }
  if (where_ == Where::kThinking) {
    if (!dim_) out += kDim;
    dim_ = true;
    const size_t end = held_.find(kClose);
    const bool closes = end != std::string::npos;
    const size_t shown = closes ? end : held_.size() - unfinished_tag(held_, kClose);
    out += terminal_safe(std::string_view(held_).substr(0, shown));
    held_.erase(0, closes ? end + kClose.size() : shown);
    if (!closes) return out;
    out += kPlain;
    dim_ = false;
    where_ = Where::kAnswer;
  }
  out += terminal_safe(held_);
  held_.clear();
  return out;
}

}  // namespace skiff::apps
