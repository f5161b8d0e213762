// Calls in Python's notation: [f(a=1), g()], or one call after the other.
#include <cctype>

#include "base/json_text.h"
#include "text/answer/call_body.h"
#include "text/answer/python_literal.h"

namespace skiff::answer {
namespace {

constexpr size_t kMaxName = 512;  // bytes

bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

class PythonBody : public CallBody {
 public:
  explicit PythonBody(CallSink& sink) : sink_(sink) {}

  Step push(char byte) override {
    switch (state_) {
      case State::kStart:
        return start(byte);
      case State::kName:
        return name(byte);
      case State::kKey:
        return key(byte);
      case State::kValue:
        return value(byte);
      default:
        return after(byte);
    }
  }

 private:
  enum class State { kStart, kName, kKey, kValue, kAfter };

  Step go(State state) {
    state_ = state;
    return Step::kMore;
  }

  Step start(char byte) {
    if (blank(byte)) return Step::kMore;
    state_ = State::kName;
    if (byte != '[') return name(byte);
    list_ = true;
    return Step::kMore;
  }

  Step name(char byte) {
    if (blank(byte) && name_.empty()) return Step::kMore;
    if (byte == ']' && name_.empty() && list_ && calls_ > 0) return Step::kDone;
    if (byte == '(' && !name_.empty()) {
      sink_.begin(name_, {});
      any_ = false;
      key_.clear();
      return go(State::kKey);
    }
    if (!in_name(byte) || name_.size() == kMaxName) return Step::kBroken;
    name_ += byte;
    return Step::kMore;
  }

  Step key(char byte) {
    if (blank(byte)) return Step::kMore;
    if (byte == ')' && key_.empty()) return end();
    if (byte == '=' && !key_.empty()) {
      value_.clear();
      quote_ = 0, depth_ = 0, escaped_ = false;
      return go(State::kValue);
    }
    if (!in_name(byte) || key_.size() == kMaxName) return Step::kBroken;
    key_ += byte;
    return Step::kMore;
  }

  // The value ends at a comma or bracket that belongs to the call.
  Step value(char byte) {
    const bool ends = quote_ == 0 && depth_ == 0 && (byte == ',' || byte == ')');
    if (!ends) {
      follow(byte);
      value_ += byte;
      return Step::kMore;
    }
    const auto json = python_to_json(value_);
    if (!json) return Step::kBroken;
    std::string member = std::exchange(any_, true) ? ", " : "{";
    append_json_string(member, key_);
    sink_.arguments(member + ": " + *json);
    key_.clear();
    return byte == ',' ? go(State::kKey) : end();
  }

  void follow(char byte) {
    if (quote_ != 0) {
      if (std::exchange(escaped_, false)) return;
      escaped_ = byte == '\\';
      if (byte == quote_) quote_ = 0;
    } else if (byte == '"' || byte == '\'') {
      quote_ = byte;
    } else if (byte == '[' || byte == '(' || byte == '{') {
      ++depth_;
    } else if (byte == ']' || byte == ')' || byte == '}') {
      --depth_;
    }
  }

  Step end() {
    sink_.arguments(any_ ? "}" : "{}");
    sink_.end();
    ++calls_;
    name_.clear();
    return list_ ? go(State::kAfter) : Step::kDone;
  }

  Step after(char byte) {
    if (blank(byte)) return Step::kMore;
    if (byte == ',') return go(State::kName);
    return byte == ']' ? Step::kDone : Step::kBroken;
  }

  CallSink& sink_;
  State state_ = State::kStart;
  bool list_ = false, any_ = false, escaped_ = false;
  char quote_ = 0;
  int depth_ = 0, calls_ = 0;
  std::string name_, key_, value_;
};

}  // namespace

std::unique_ptr<CallBody> python_body(CallSink& sink) { return std::make_unique<PythonBody>(sink); }

std::unique_ptr<CallBody> make_body(const CallFormat& format, const ToolTypes& types,
                                    CallSink& sink) {
  switch (format.notation) {
    case Notation::kJson:
      return json_body(format, &types, sink);
    case Notation::kNamed:
      return named_body(format, sink);
    case Notation::kTagged:
      return tagged_body(format, types, sink);
    default:
      return python_body(sink);
  }
}

}  // namespace skiff::answer
