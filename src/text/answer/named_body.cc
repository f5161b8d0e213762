// Calls as a name, a mark and the arguments as a JSON object.
#include <algorithm>

#include "text/answer/call_body.h"
#include "text/answer/json_scanner.h"
#include "text/answer/mark_finder.h"

namespace skiff::answer {
namespace {

constexpr size_t kMaxName = 512, kMaxFence = 64;  // bytes

bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string trimmed(const std::string& text) {
  const auto begin = std::ranges::find_if_not(text, blank);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), blank).base();
  return begin < end ? std::string(begin, end) : std::string();
}

class NamedBody : public CallBody {
 public:
  NamedBody(const CallFormat& format, CallSink& sink)
      : format_(format), sink_(sink), state_(format.lead.empty() ? State::kName : State::kLead) {
    if (state_ == State::kLead)
      marks_.look_for({format_.lead});
    else
      look_for_end();
  }

  Step push(char byte) override {
    if (json_) return json_->push(byte);
    switch (state_) {
      case State::kLead:
        return lead(byte);
      case State::kName:
      case State::kId:
        return name(byte);
      case State::kFence:
        return fence(byte);
      default:
        return arguments(byte);
    }
  }

 private:
  enum class State { kLead, kName, kId, kFence, kArguments };

  void look_for_end() { marks_.look_for({format_.name_end, format_.id, "{"}); }

  Step lead(char byte) {
    std::string skipped;
    if (marks_.push(byte, skipped)) {
      state_ = State::kName;
      look_for_end();
    }
    return ++seen_ > kMaxName ? Step::kBroken : Step::kMore;
  }

  // Older models of a family write the whole call as JSON where newer ones write the name.
  Step name(char byte) {
    std::string& text = state_ == State::kName ? name_ : id_;
    if (state_ == State::kName && name_.empty() && (byte == '[' || byte == '{')) {
      json_ = json_body(format_, nullptr, sink_);
      return json_->push(byte);
    }
    const auto mark = marks_.push(byte, text);
    if (text.size() > kMaxName) return Step::kBroken;
    if (state_ == State::kName && blank(text.empty() ? 'x' : text.front()) && text.size() == 1)
      text.clear();
    if (!mark) return Step::kMore;
    if (*mark == 1) {
      state_ = State::kId;
      return Step::kMore;
    }
    if (!begin()) return Step::kBroken;
    state_ = *mark == 0 ? State::kFence : State::kArguments;
    seen_ = 0;
    return *mark == 0 ? Step::kMore : arguments('{');
  }

  bool begin() {
    name_ = trimmed(name_);
    id_ = trimmed(id_);
    if (format_.name_is_id) {
      id_ = name_;
      name_ = name_.substr(0, name_.rfind(':'));
      if (name_.starts_with("functions.")) name_.erase(0, std::string_view("functions.").size());
    }
    if (name_.empty()) return false;
    sink_.begin(name_, id_);
    return true;
  }

  // What may stand between the name and the arguments: blanks, and the opening fence of a code
  // block.
  Step fence(char byte) {
    if (byte == '{') {
      state_ = State::kArguments;
      return arguments(byte);
    }
    if (!blank(byte) && format_.fence.find(byte) == std::string_view::npos) return Step::kBroken;
    return ++seen_ > kMaxFence ? Step::kBroken : Step::kMore;
  }

  Step arguments(char byte) {
    const auto step = scanner_.push(byte);
    if (step == JsonScanner::Step::kBad) return Step::kBroken;
    sink_.arguments(std::string_view(&byte, 1));
    if (step == JsonScanner::Step::kMore) return Step::kMore;
    sink_.end();
    return Step::kDone;
  }

  const CallFormat& format_;
  CallSink& sink_;
  State state_;
  MarkFinder marks_;
  JsonScanner scanner_;
  std::unique_ptr<CallBody> json_;
  size_t seen_ = 0;
  std::string name_, id_;
};

}  // namespace

std::unique_ptr<CallBody> named_body(const CallFormat& format, CallSink& sink) {
  return std::make_unique<NamedBody>(format, sink);
}

}  // namespace skiff::answer
