#include "route/json_members.h"

#include <cstddef>
#include <string>

namespace skiff::route {
namespace {

// Nesting that is followed; deeper values are refused.
constexpr size_t kMaxDepth = 1024;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// A place in a text that moves forward over tokens.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  // Moves over a string and gives what is between its quotes.
  bool take_string(std::string_view* inside) {
    if (!take('"')) return false;
    const size_t begin = at_;
    if (!finish_string()) return false;
    *inside = text_.substr(begin, at_ - 1 - begin);
    return true;
  }
  // Moves to the comma or the bracket that ends a value.
  bool take_value(std::string_view* value) {
    skip_space();
    const size_t begin = at_;
    if (!finish_value()) return false;
    size_t end = at_;
    while (end > begin && is_space(text_[end - 1])) --end;
    *value = text_.substr(begin, end - begin);
    return !value->empty();
  }

 private:
  bool finish_string() {
    for (;;) {
      at_ = text_.find_first_of("\"\\", at_);
      if (at_ == std::string_view::npos) return false;
      if (text_[at_++] == '"') return true;
      if (at_++ >= text_.size()) return false;
    }
  }
  bool finish_value() {
    std::string open;  // the brackets that are open
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (open.empty() && (c == ',' || c == '}' || c == ']')) return true;
      ++at_;
      if (c == '"') {
        if (!finish_string()) return false;
      } else if (c == '{' || c == '[') {
        if (open.size() == kMaxDepth) return false;
        open += c == '{' ? '}' : ']';
      } else if (c == '}' || c == ']') {
        if (open.back() != c) return false;
        open.pop_back();
      }
    }
    return false;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool json_members(std::string_view text, std::vector<JsonMember>* members) {
  Cursor cursor(text);
  if (!cursor.take('{')) return false;
  if (cursor.take('}')) return cursor.at_end();
  do {
    JsonMember member;
    if (!cursor.take_string(&member.first) || !cursor.take(':') ||
        !cursor.take_value(&member.second))
      return false;
    members->push_back(member);
  } while (cursor.take(','));
  return cursor.take('}') && cursor.at_end();
}

}  // namespace skiff::route
