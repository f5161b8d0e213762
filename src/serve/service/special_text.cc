#include "serve/service/special_text.h"

#include <algorithm>
#include <random>

#include "base/utf8.h"

namespace skiff::service {
namespace {

// A random number between two noncharacters, which do not occur in text for interchange.
std::string random_mark() {
  std::random_device device;
  const uint64_t number = (uint64_t{device()} << 32) ^ device();
  return fmt::format("\uFDD0{:016x}\uFDD1", number);
}

bool is_foreign(const OrderedJson& message) {
  const auto role = message.find("role");
  if (role == message.end()) return false;
  for (const char* foreign : {"user", "tool", "function", "observation", "ipython"})
    if (*role == foreign) return true;
  return false;
}

}  // namespace

SpecialText::SpecialText(const text::Tokenizer& tokenizer) : mark_(random_mark()) {
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (!tokenizer.is_special(token)) continue;
    text::AddedToken added;
    added.content = std::string(tokenizer.piece(token));
    added.id = token;
    added.special = true;
    special_.add(added, added.content);
  }
}

// A spelling gets a mark after its first character and one after its end, so that no other spelling
// can begin inside it and go on behind it. The rest of it may contain a shorter spelling.
void SpecialText::append_marked(std::string_view text, std::string& out) const {
  std::vector<text::TextSegment> segments;
  special_.split(text, /*parse_special=*/true, segments);
  for (const text::TextSegment& segment : segments) {
    if (segment.token < 0) {
      out += segment.text;
      continue;
    }
    const auto first = static_cast<size_t>(std::max(1, utf8_length(segment.text)));
    out.append(segment.text.substr(0, first)).append(mark_);
    append_marked(segment.text.substr(first), out);
    out += mark_;
  }
}

std::optional<text::Conversation> SpecialText::marked(
    const text::Conversation& conversation) const {
  std::optional<text::Conversation> out;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const OrderedJson& message = conversation.messages[i];
    if (!message.is_object() || !is_foreign(message)) continue;
    const auto content = message.find("content");
    if (content == message.end() || !content->is_string()) continue;
    const std::string& text = content->get_ref<const std::string&>();
    std::string with_marks;
    append_marked(text, with_marks);
    if (with_marks.size() == text.size()) continue;
    if (!out) out = conversation;
    out->messages[i]["content"] = std::move(with_marks);
  }
  return out;
}

std::vector<int32_t> SpecialText::encode(const text::Tokenizer& tokenizer, std::string_view text,
                                         const text::EncodeOptions& options) const {
  size_t end = text.find(mark_);
  if (end == text.npos) return tokenizer.encode(text, options);
  std::vector<int32_t> tokens;
  if (options.add_special) tokens = tokenizer.encode("", options);
  const text::EncodeOptions inside{.add_special = false, .parse_special = options.parse_special};
  for (;;) {
    const auto piece = tokenizer.encode(text.substr(0, end), inside);
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    if (end == text.npos) return tokens;
    text.remove_prefix(end + mark_.size());
    end = text.find(mark_);
  }
}

}  // namespace skiff::service
