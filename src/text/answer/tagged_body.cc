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
    if (format_.may_lack_value_end) next_key_.append("\n").append(format_.key);
  }

  Step push(char byte) override {
    if (state_ == State::kNextKey) return next_key(byte);
    if (state_ == State::kAfterClose) return after_close(byte);
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

  bool finish() override {
    if (state_ != State::kAfterClose) return false;
    end_value();
    end();
    return true;
  }

 private:
  enum class State {
    kName,
    kBetween,
    kKey,
    kBeforeValue,
    kValue,
    kNextKey,     // in a value, behind what may open the next argument
    kAfterClose,  // in a value, behind what may close the call
  };

  Step name(std::optional<size_t> mark, const std::string& text) {
    name_ += text;
    if (name_.size() > kMaxName) return Step::kBroken;
    if (!mark) return Step::kMore;
    name_ = trimmed(name_);
    if (name_.empty()) return *mark == 0 && format_.name_end == "\n" ? Step::kMore : Step::kBroken;
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

  // A text about calls may hold a name in its mark; only what follows makes it a call.
  void begin() {
    if (!std::exchange(begun_, true)) sink_.begin(name_, {});
  }

  Step go_key() {
    begin();
    state_ = State::kKey;
    key_.clear();
    marks_.look_for({format_.key_end});
    return Step::kMore;
  }

  Step key(std::optional<size_t> mark, const std::string& text) {
    key_ += text;
    if (key_.size() > kMaxName) return Step::kBroken;
    return mark ? end_key() : Step::kMore;
  }

  Step end_key() {
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
    allowed_ = types_.find(name_, key_);
    if (attribute_.find("string=\"true\"") != std::string::npos) allowed_ = kJsonString;
    stream_ = allowed_ == kJsonString;  // the text of a nullable string may yet be null
    first_ = true;
    marks_.look_for(
        {format_.value_end, next_key_, next_key_.empty() ? std::string_view() : format_.close});
    std::string member = std::exchange(any_, true) ? ", " : "{";
    append_json_string(member, key_);
    member += stream_ ? ": \"" : ": ";
    sink_.arguments(member);
    return Step::kMore;
  }

  Step value(std::optional<size_t> mark, const std::string& text) {
    add_to_value(text);
    if (!mark) return Step::kMore;
    if (*mark == 0) {
      end_value();
      return go_between();
    }
    state_ = *mark == 1 ? State::kNextKey : State::kAfterClose;
    doubtful_.clear();
    return Step::kMore;
  }

  void add_to_value(std::string_view text) {
    for (const char c : text) {
      if (std::exchange(first_, false) && c == '\n') continue;
      value_ += c;
      if (stream_) stream_value();
    }
  }

  // The closing mark may have a line of its own.
  void end_value() {
    if (value_.ends_with('\n')) value_.pop_back();
    write_value();
  }

  void write_value() {
    if (stream_) {
      write_string(value_);
      sink_.arguments("\"");
    } else {
      sink_.arguments(typed_json(value_, allowed_));
    }
  }

  // The value has lost its closing mark if the function has an argument of the name that comes.
  Step next_key(char byte) {
    doubtful_ += byte;
    if (byte == '<' || byte == '\n' || doubtful_.size() > kMaxName) return back_to_value(next_key_);
    if (!doubtful_.ends_with(format_.key_end)) return Step::kMore;
    const std::string name =
        trimmed(std::string_view(doubtful_).substr(0, doubtful_.size() - format_.key_end.size()));
    if (!types_.has(name_, name)) return back_to_value(next_key_);
    write_value();
    key_ = name;
    return end_key();
  }

  // So it has if the call's section ends, too, or the answer does: finish().
  Step after_close(char byte) {
    doubtful_ += byte;
    std::string_view rest = doubtful_;
    while (!rest.empty() && blank(rest.front())) rest.remove_prefix(1);
    if (!format_.section_end.starts_with(rest) || doubtful_.size() > kMaxName)
      return back_to_value(format_.close);
    if (rest.size() < format_.section_end.size()) return Step::kMore;
    end_value();
    return end();
  }

  // The mark was text like any other. What came behind it may begin another one.
  Step back_to_value(std::string_view mark) {
    state_ = State::kValue;
    add_to_value(mark);
    Step step = Step::kMore;
    for (const char c : std::exchange(doubtful_, {})) step = push(c);
    return step;
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
    begin();
    sink_.arguments(any_ ? "}" : "{}");
    sink_.end();
    return Step::kDone;
  }

  const CallFormat& format_;
  const ToolTypes& types_;
  CallSink& sink_;
  State state_ = State::kName;
  MarkFinder marks_;
  JsonTypes allowed_ = kJsonAny;
  bool begun_ = false, stream_ = false, any_ = false, first_ = false;
  std::string name_, key_, attribute_, value_;
  std::string next_key_;  // opens an argument behind a value without its closing mark
  std::string doubtful_;  // what came behind such a mark
};

}  // namespace

std::unique_ptr<CallBody> tagged_body(const CallFormat& format, const ToolTypes& types,
                                      CallSink& sink) {
  return std::make_unique<TaggedBody>(format, types, sink);
}

}  // namespace skiff::answer
