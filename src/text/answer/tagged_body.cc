// Calls whose arguments stand between marks as plain text, one after the other.
#include "base/json_text.h"
#include "base/utf8.h"
#include "text/answer/call_body.h"
#include "text/answer/mark_finder.h"

namespace skiff::answer {
namespace {

constexpr size_t kMaxName = 512;  // bytes

bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string trimmed(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// How many bytes at the end of `text` may not be written yet: a newline, which may be the one
// before the closing mark, or a character of which bytes are missing.
size_t withheld(std::string_view text) {
  if (text.ends_with('\n')) return 1;
  for (size_t tail = 1; tail <= 3 && tail <= text.size(); ++tail)
    if (const auto lead = static_cast<unsigned char>(text[text.size() - tail]); lead >= 0xC0)
      return utf8_length(text.substr(text.size() - tail)) == 0 ? tail : 0;
  return 0;
}

class TaggedBody : public CallBody {
 public:
  TaggedBody(const CallFormat& format, const ToolTypes& types, CallSink& sink)
      : format_(format), types_(types), sink_(sink) {
    marks_.look_for({format_.name_end, format_.key, format_.close});
  }

  Step push(char byte) override {
    std::string text;
    const auto mark = marks_.push(byte, text);
    switch (state_) {
      case State::kName:
        return name(mark, text);
      case State::kBetween:
        return between(mark, text);
      case State::kKey:
        return key(mark, text);
      case State::kBeforeValue:
        return before_value(mark, text);
      default:
        return value(mark, text);
    }
  }

 private:
  enum class State { kName, kBetween, kKey, kBeforeValue, kValue };

  Step name(std::optional<size_t> mark, const std::string& text) {
    name_ += text;
    if (name_.size() > kMaxName) return Step::kBroken;
    if (!mark) return Step::kMore;
    name_ = trimmed(name_);
    if (name_.empty()) return *mark == 0 && format_.name_end == "\n" ? Step::kMore : Step::kBroken;
    sink_.begin(name_, {});
    if (*mark == 0) return go_between();
    return *mark == 1 ? go_key() : end();
  }

  Step go_between() {
    state_ = State::kBetween;
    marks_.look_for({format_.key, format_.close});
    return Step::kMore;
  }

  Step between(std::optional<size_t> mark, const std::string& text) {
    for (const char c : text)
      if (!blank(c)) return Step::kBroken;
    if (!mark) return Step::kMore;
    return *mark == 0 ? go_key() : end();
  }

  Step go_key() {
    state_ = State::kKey;
    key_.clear();
    marks_.look_for({format_.key_end});
    return Step::kMore;
  }

  Step key(std::optional<size_t> mark, const std::string& text) {
    key_ += text;
    if (key_.size() > kMaxName) return Step::kBroken;
    if (!mark) return Step::kMore;
    key_ = trimmed(key_);
    if (key_.empty()) return Step::kBroken;
    attribute_.clear();
    if (format_.value.empty()) return go_value();
    state_ = State::kBeforeValue;
    marks_.look_for({format_.value});
    return Step::kMore;
  }

  // Blanks, or what the model says about the value: string="true".
  Step before_value(std::optional<size_t> mark, const std::string& text) {
    attribute_ += text;
    if (attribute_.size() > kMaxName) return Step::kBroken;
    return mark ? go_value() : Step::kMore;
  }

  Step go_value() {
    state_ = State::kValue;
    value_.clear();
    type_ = types_.find(name_, key_);
    if (attribute_.find("string=\"true\"") != std::string::npos)
      type_ = {.kind = ArgumentType::Kind::kString};
    // The text of a nullable string may yet be null.
    stream_ = type_.kind == ArgumentType::Kind::kString && !type_.nullable;
    first_ = true;
    marks_.look_for({format_.value_end});
    std::string member = std::exchange(any_, true) ? ", " : "{";
    append_json_string(member, key_);
    member += stream_ ? ": \"" : ": ";
    sink_.arguments(member);
    return Step::kMore;
  }

  Step value(std::optional<size_t> mark, const std::string& text) {
    for (const char c : text) {
      if (std::exchange(first_, false) && c == '\n') continue;
      value_ += c;
      if (stream_) stream_value();
    }
    if (!mark) return Step::kMore;
    if (value_.ends_with('\n')) value_.pop_back();
    if (stream_) {
      write_string(value_);
      sink_.arguments("\"");
    } else {
      sink_.arguments(typed_json(value_, type_));
    }
    return go_between();
  }

  void stream_value() {
    const size_t ready = value_.size() - withheld(value_);
    write_string(std::string_view(value_).substr(0, ready));
    value_.erase(0, ready);
  }

  void write_string(std::string_view text) {
    std::string quoted;
    append_json_string(quoted, text);
    sink_.arguments(std::string_view(quoted).substr(1, quoted.size() - 2));
  }

  Step end() {
    sink_.arguments(any_ ? "}" : "{}");
    sink_.end();
    return Step::kDone;
  }

  const CallFormat& format_;
  const ToolTypes& types_;
  CallSink& sink_;
  State state_ = State::kName;
  MarkFinder marks_;
  ArgumentType type_;
  bool stream_ = false, any_ = false, first_ = false;
  std::string name_, key_, attribute_, value_;
};

}  // namespace

std::unique_ptr<CallBody> tagged_body(const CallFormat& format, const ToolTypes& types,
                                      CallSink& sink) {
  return std::make_unique<TaggedBody>(format, types, sink);
}

}  // namespace skiff::answer
