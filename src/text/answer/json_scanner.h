// text/answer/json_scanner.h -- follows one JSON object or array byte by byte and says where in it
// the stream is.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff::answer {

// Strict JSON (RFC 8259), except that UTF-8 is not checked and keys may repeat. Memory grows with
// the depth of the value, which is bounded; work is constant per byte. Not thread-safe.
class JsonScanner {
 public:
  enum class Step { kMore, kDone, kBad };
  static constexpr size_t kMaxDepth = 128;

  // Takes one byte. kDone: it was the last of the value. After kDone or kBad nothing may be pushed.
  Step push(char byte);

  size_t depth() const { return open_.size(); }
  bool in_key() const { return key_ && in_string(); }
  bool in_string() const { return state_ >= State::kString && state_ <= State::kHex; }
  // A member's value is complete, and a comma or the end of the object comes next.
  bool after_value() const { return state_ == State::kAfter; }
  bool before_value() const { return state_ == State::kValue || state_ == State::kFirstValue; }

 private:
  enum class State : uint8_t {
    kValue,       // a value must come
    kFirstValue,  // a value or ]
    kKey,         // a key must come
    kFirstKey,    // a key or }
    kColon,
    kAfter,  // a comma or the closing bracket
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kE,
    kSign,
    kExponent,
  };

  Step value(char byte);
  Step open(char bracket);
  Step close(char bracket);
  Step string(char byte);
  Step digit(char byte);
  Step number(char byte);
  Step after(char byte);
  Step go(State state) {
    state_ = state;
    return Step::kMore;
  }

  State state_ = State::kValue;
  bool key_ = false;
  int hex_ = 0;               // digits of \uXXXX that must still come
  std::string_view literal_;  // what must still come of true, false or null
  std::vector<char> open_;    // closing brackets that must still come
};

// Returns whether the text is one JSON value of any type, by the scanner's rules, without blanks
// around it.
bool is_json_value(std::string_view text);

}  // namespace skiff::answer
