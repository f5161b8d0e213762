#include "text/answer/json_scanner.h"

namespace skiff::answer {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Step JsonScanner::push(char byte) {
  if (in_string()) return string(byte);
  switch (state_) {
    case State::kValue:
      return is_space(byte) ? Step::kMore : value(byte);
    case State::kFirstValue:
      if (is_space(byte)) return Step::kMore;
      return byte == ']' ? close(byte) : value(byte);
    case State::kKey:
    case State::kFirstKey:
      if (is_space(byte)) return Step::kMore;
      if (byte == '}' && state_ == State::kFirstKey) return close(byte);
      if (byte != '"') return Step::kBad;
      key_ = true;
      return go(State::kString);
    case State::kColon:
      if (is_space(byte)) return Step::kMore;
      return byte == ':' ? go(State::kValue) : Step::kBad;
    case State::kAfter:
      return after(byte);
    case State::kLiteral:
      if (byte != literal_.front()) return Step::kBad;
      literal_.remove_prefix(1);
      return literal_.empty() ? go(State::kAfter) : Step::kMore;
    default:
      return number(byte);
  }
}

JsonScanner::Step JsonScanner::value(char byte) {
  if (byte == '{' || byte == '[') return open(byte);
  if (open_.empty()) return Step::kBad;
  if (byte == '"') {
    key_ = false;
    return go(State::kString);
  }
  if (byte == '-') return go(State::kMinus);
  if (byte == '0') return go(State::kZero);
  if (is_digit(byte)) return go(State::kInteger);
  literal_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : byte == 'n' ? "ull" : "";
  return literal_.empty() ? Step::kBad : go(State::kLiteral);
}

JsonScanner::Step JsonScanner::open(char bracket) {
  if (open_.size() == kMaxDepth) return Step::kBad;
  open_.push_back(bracket == '{' ? '}' : ']');
  return go(bracket == '{' ? State::kFirstKey : State::kFirstValue);
}

JsonScanner::Step JsonScanner::close(char bracket) {
  if (open_.back() != bracket) return Step::kBad;
  open_.pop_back();
  state_ = State::kAfter;
  return open_.empty() ? Step::kDone : Step::kMore;
}

JsonScanner::Step JsonScanner::after(char byte) {
  if (is_space(byte)) return Step::kMore;
  if (byte == ',') return go(open_.back() == '}' ? State::kKey : State::kValue);
  return byte == '}' || byte == ']' ? close(byte) : Step::kBad;
}

JsonScanner::Step JsonScanner::string(char byte) {
  if (state_ == State::kEscape) {
    hex_ = byte == 'u' ? 4 : 0;
    if (hex_ > 0) return go(State::kHex);
    return std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos ? Step::kBad
                                                                               : go(State::kString);
  }
  if (state_ == State::kHex) {
    if (!is_hex(byte)) return Step::kBad;
    return --hex_ == 0 ? go(State::kString) : Step::kMore;
  }
  if (byte == '"') return go(key_ ? State::kColon : State::kAfter);
  if (byte == '\\') return go(State::kEscape);
  return static_cast<unsigned char>(byte) < 0x20 ? Step::kBad : Step::kMore;
}

JsonScanner::Step JsonScanner::digit(char byte) {
  switch (state_) {
    case State::kMinus:
      return go(byte == '0' ? State::kZero : State::kInteger);
    case State::kPoint:
    case State::kFraction:
      return go(State::kFraction);
    case State::kE:
    case State::kSign:
    case State::kExponent:
      return go(State::kExponent);
    default:
      return state_ == State::kZero ? Step::kBad : Step::kMore;
  }
}

// A number ends at the byte behind it, which belongs to the value that holds the number.
JsonScanner::Step JsonScanner::number(char byte) {
  const bool integer = state_ == State::kZero || state_ == State::kInteger;
  const bool fraction = state_ == State::kFraction;
  if (is_digit(byte)) return digit(byte);
  if (byte == '.' && integer) return go(State::kPoint);
  if ((byte == 'e' || byte == 'E') && (integer || fraction)) return go(State::kE);
  if ((byte == '+' || byte == '-') && state_ == State::kE) return go(State::kSign);
  if (!integer && !fraction && state_ != State::kExponent) return Step::kBad;
  state_ = State::kAfter;
  return after(byte);
}

// The value as the only one of a list.
bool is_json_value(std::string_view text) {
  if (text.empty()) return false;
  JsonScanner scanner;
  scanner.push('[');
  for (const char byte : text) {
    if (byte == ',' && scanner.depth() == 1 && !scanner.in_string()) return false;
    if (scanner.push(byte) != JsonScanner::Step::kMore) return false;
  }
  return scanner.push(']') == JsonScanner::Step::kDone;
}

}  // namespace skiff::answer
