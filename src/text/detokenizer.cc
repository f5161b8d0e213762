#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace skiff::text {
namespace {

// Returns how many bytes at the end of `text` begin an unfinished character: 0 to 3.
size_t unfinished_tail(std::string_view text) {
  for (size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    if (static_cast<uint8_t>(tail[0]) >= 0xC0) return utf8_length(tail) == 0 ? length : 0;
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), finder_(options_.stops) {}

bool Detokenizer::skips(int32_t token) const {
  return options_.skip_special && tokenizer_.is_special(token) &&
         std::ranges::find(options_.shown, token) == options_.shown.end();
}

std::string Detokenizer::push(int32_t token) {
  ++pushed_;
  if (stopped_ || skips(token)) return {};
  bytes_ += tokenizer_.piece(token);
  const size_t tail = unfinished_tail(bytes_);
  const std::string text = utf8_sanitized(std::string_view(bytes_).substr(0, bytes_.size() - tail));
  bytes_.erase(0, bytes_.size() - tail);
  return take(text);
}

std::string Detokenizer::flush() {
  if (stopped_) return {};
  std::string out = take(utf8_sanitized(std::exchange(bytes_, {})));
  if (!stopped_) out += release(0);
  return out;
}

std::string Detokenizer::take(std::string_view text) {
  if (pushed_ <= options_.min_tokens) return std::string(text);
  for (const char byte : text) {
    held_ += byte;
    if (finder_.push(byte)) return stop();
  }
  return release(finder_.pending());
}

// A stop string begins at the start of a character, so a character starts `keep` bytes before the
// end.
std::string Detokenizer::release(size_t keep) {
  const size_t count = held_.size() - keep;
  std::string out = held_.substr(0, count);
  held_.erase(0, count);
  return out;
}

std::string Detokenizer::stop() {
  stopped_ = true;
  stop_found_ = finder_.found();
  if (!options_.include_stop) held_.resize(held_.size() - stop_found_.size());
  return std::exchange(held_, {});
}

}  // namespace skiff::text
