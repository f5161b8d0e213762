// Calls as JSON: {"name": ..., "arguments": {...}}, or a list of such objects.
#include "base/json.h"
#include "text/answer/call_body.h"
#include "text/answer/json_scanner.h"

namespace skiff::answer {
namespace {

enum class Member { kOther, kName, kArguments, kId };

Member member_of(std::string_view key) {
  if (key == "name" || key == "tool_name") return Member::kName;
  if (key == "arguments" || key == "parameters") return Member::kArguments;
  if (key == "id" || key == "tool_call_id") return Member::kId;
  return Member::kOther;
}

// Returns the value of a JSON string, which is given with its quotes.
std::string unquoted(const std::string& text) {
  const auto value = parse_json("[" + text + "]");
  return value ? value->front().get<std::string>() : std::string();
}

class JsonBody : public CallBody {
 public:
  JsonBody(const CallFormat& format, const ToolTypes* types, CallSink& sink)
      : unmarked_(format.open_is_call || format.bare_list), types_(types), sink_(sink) {}

  Step push(char byte) override {
    const size_t depth = scanner_.depth();
    const bool in_key = scanner_.in_key(), wanted = scanner_.before_value() && !blank(byte);
    const auto step = scanner_.push(byte);
    if (step == JsonScanner::Step::kBad) return Step::kBroken;
    if (depth == 0 && byte == '[') {
      list_ = 1;
      return Step::kMore;
    }
    if (!call_byte(byte, depth, in_key, wanted)) return Step::kBroken;
    return step == JsonScanner::Step::kDone ? Step::kDone : Step::kMore;
  }

 private:
  static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

  // The scanner has taken the byte; `depth`, `in_key` and `wanted` are its state before. False:
  // this is no call.
  bool call_byte(char byte, size_t depth, bool in_key, bool wanted) {
    const size_t members = list_ + 1;  // the depth of a call's members
    if (depth < members) {
      if (wanted && byte == '{') start_call();
      return !wanted || byte == '{' || byte == ']';
    }
    if (depth > members) return !in_value_ || value_byte(byte);
    if (scanner_.depth() < members) return end_call();
    return member(byte, in_key, wanted);
  }

  void start_call() {
    begun_ = in_value_ = has_arguments_ = says_arguments_ = false;
    key_.clear(), name_.clear(), id_.clear(), held_.clear(), text_.clear();
  }

  // A byte between the members of a call, or of a key, or of a value that is no object or list.
  bool member(char byte, bool in_key, bool wanted) {
    if (scanner_.in_key()) {
      if (in_key)
        key_ += byte;
      else
        key_.clear();
      in_value_ = false;  // a number ends without a sign of its own
      return true;
    }
    if (in_key) return true;
    return wanted ? start_value(byte) : !in_value_ || value_byte(byte);
  }

  bool start_value(char byte) {
    member_ = member_of(key_);
    in_value_ = true;
    text_.clear();
    if (member_ == Member::kOther && unmarked_ && !begun_ && key_ != "type" && key_ != "function")
      return false;
    if (member_ == Member::kName && (byte != '"' || !name_.empty())) return false;
    if (member_ == Member::kArguments) {
      if (std::exchange(has_arguments_, true)) return false;
      says_arguments_ = true;
      if (byte != '{' && byte != '"' && byte != 'n') return false;
      stream_ = byte == '{';
    }
    return value_byte(byte);
  }

  bool value_byte(char byte) {
    if (member_ == Member::kArguments && stream_)
      emit(std::string_view(&byte, 1));
    else if (member_ != Member::kOther)
      text_ += byte;
    if (!scanner_.after_value() || scanner_.depth() != list_ + 1) return true;
    in_value_ = false;
    return end_value();
  }

  bool end_value() {
    switch (member_) {
      case Member::kId:
        if (text_.starts_with('"')) id_ = unquoted(text_);
        return true;
      case Member::kName:
        name_ = unquoted(text_);
        return !name_.empty();
      case Member::kArguments:
        return stream_ || end_quoted();
      default:
        return true;
    }
  }

  // Arguments as a string that holds the object, or null.
  bool end_quoted() {
    if (text_ == "null") {
      has_arguments_ = false;
      return true;
    }
    if (!text_.starts_with('"')) return false;
    const std::string inner = unquoted(text_);
    const auto value = parse_json(inner);
    if (!value || !value->is_object()) return false;
    emit(inner);
    return true;
  }

  // Arguments wait until the name is known.
  void emit(std::string_view text) {
    if (!begun_ && !begin()) {
      held_ += text;
      return;
    }
    sink_.arguments(text);
  }

  bool begin() {
    if (name_.empty()) return false;
    begun_ = true;
    sink_.begin(name_, id_);
    if (!held_.empty()) sink_.arguments(std::exchange(held_, {}));
    return true;
  }

  // An answer such as {"name": "Bob"} is no call, unless there is a function of that name.
  bool end_call() {
    if (unmarked_ && !says_arguments_ && !(types_ && types_->has(name_))) return false;
    if (!begun_ && !begin()) return false;
    if (!has_arguments_) sink_.arguments("{}");
    sink_.end();
    return true;
  }

  const bool unmarked_;  // nothing but its members tells a call from an answer in JSON
  const ToolTypes* types_;
  CallSink& sink_;
  JsonScanner scanner_;
  size_t list_ = 0;  // depth of the list of calls; 0: there is no list
  bool begun_ = false, in_value_ = false, has_arguments_ = false, stream_ = false;
  bool says_arguments_ = false;  // perhaps as null
  Member member_ = Member::kOther;
  std::string key_, name_, id_, held_, text_;
};

}  // namespace

std::unique_ptr<CallBody> json_body(const CallFormat& format, const ToolTypes* types,
                                    CallSink& sink) {
  return std::make_unique<JsonBody>(format, types, sink);
}

}  // namespace skiff::answer
