#include "text/answer/answer_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace skiff::answer {
namespace {

bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string short_id(uint64_t state) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id;
  for (int i = 0; i < 9; ++i) id += kLetters[splitmix64(state) % kLetters.size()];
  return id;
}

constexpr std::string_view kList = "[";

// Signs that stand between calls and mean nothing.
bool separator(char c) { return blank(c) || c == ';' || c == ','; }

}  // namespace

AnswerParser::AnswerParser(std::shared_ptr<const AnswerOptions> options, uint64_t seed)
    : options_(std::move(options)),
      seed_(seed),
      calls_format_(options_->formats.calls ? *options_->formats.calls : CallFormat{}),
      reasoning_format_(options_->formats.reasoning ? *options_->formats.reasoning
                                                    : ReasoningFormat{}) {
  const bool reasons = options_->formats.reasoning && options_->starts_in_reasoning;
  enter(reasons ? State::kReasoning : State::kContent);
  skip_blanks_ = reasons;
}

void AnswerParser::enter(State state) {
  state_ = state;
  const CallFormat& calls = calls_format_;
  const ReasoningFormat& reasoning = reasoning_format_;
  if (state == State::kReasoning)
    marks_.look_for(
        {reasoning.end, reasoning.begin, calls.ends_reasoning, calls.ends_reasoning_too});
  else if (state == State::kContent)
    marks_.look_for({calls.section, calls.bare_list ? kList : calls.open, reasoning.begin,
                     reasoning.content, reasoning.content_end, calls.section_too, calls.open_too,
                     calls.message_end});
  else if (state == State::kBetween)
    marks_.look_for({calls.close, calls.open, calls.section_end,
                     calls.fence.substr(0, std::min<size_t>(3, calls.fence.size())), calls.section,
                     calls.section_too, calls.open_too, calls.message_end});
}

void AnswerParser::push(std::string_view text, AnswerEvents& events) {
  const bool before = in_reasoning();
  append(text, events);
  if (before && in_reasoning()) ++reasoning_tokens_;
}

void AnswerParser::append(std::string_view text, AnswerEvents& events) {
  out_ = &events;
  for (const char c : text) byte(c);
  out_ = nullptr;
}

void AnswerParser::byte(char c) {
  switch (state_) {
    case State::kReasoning:
      return reasoning_byte(c);
    case State::kContent:
      return content_byte(c);
    case State::kBody:
      return body_byte(c);
    case State::kBetween:
      return between_byte(c);
    case State::kEnded:
      return;
  }
}

// White space waits for what follows.
void AnswerParser::text(Part part, std::string_view bytes) {
  for (const char c : bytes) {
    if (blank(c)) {
      if (!skip_blanks_) blanks_ += c;
      continue;
    }
    skip_blanks_ = false;
    (part == Part::kContent ? has_content_ : has_reasoning_) = true;
    append_event(*out_, {.part = part, .text = std::exchange(blanks_, {}) + c});
  }
}

void AnswerParser::reasoning_byte(char c) {
  std::string bytes;
  const auto mark = marks_.push(c, bytes);
  text(Part::kReasoning, bytes);
  if (!mark) return;
  if (*mark == 1) {  // the opening mark, although the reasoning is open
    if (has_reasoning_) text(Part::kReasoning, reasoning_format_.begin);
    return;
  }
  blanks_.clear();
  skip_blanks_ = reasoned_ = true;
  enter(State::kContent);
  if (*mark == 0) return;
  for (const char b : *mark == 2 ? calls_format_.ends_reasoning : calls_format_.ends_reasoning_too)
    byte(b);
}

void AnswerParser::content_byte(char c) {
  std::string bytes;
  const auto mark = marks_.push(c, bytes);
  text(Part::kContent, bytes);
  if (mark) content_mark(*mark);
}

bool AnswerParser::calls_allowed() const {
  return !wrapped_ && !(calls_format_.only_at_start && has_content_);
}

void AnswerParser::content_mark(size_t mark) {
  switch (mark) {
    case kSection:
      return section_mark(calls_format_.section);
    case kSectionToo:
      return section_mark(calls_format_.section_too);
    case kOpen:
      if (calls_format_.bare_list) return list_mark();
      return open_mark(calls_format_.open);
    case kOpenToo:
      return open_mark(calls_format_.open_too);
    case kMessageEnd:
      return end_message();
    case kThink:
      if (has_content_ || begun_ > 0 || reasoned_)
        return text(Part::kContent, reasoning_format_.begin);
      enter(State::kReasoning);
      break;
    default:
      wrapped_ = true;
      break;
  }
  blanks_.clear();
  skip_blanks_ = true;
}

void AnswerParser::section_mark(std::string_view mark) {
  return calls_allowed() ? begin_section(mark) : text(Part::kContent, mark);
}

void AnswerParser::open_mark(std::string_view mark) {
  return calls_allowed() ? begin_call(mark) : text(Part::kContent, mark);
}

void AnswerParser::list_mark() {
  return calls_allowed() && !has_content_ ? begin_call(kList) : text(Part::kContent, kList);
}

void AnswerParser::begin_section(std::string_view opening) {
  in_section_ = true;
  raw_ = std::exchange(blanks_, {}).append(opening);
  enter(State::kBetween);
}

// The mark is kept only for a call behind it that is none after all.
void AnswerParser::end_message() {
  raw_ = std::exchange(blanks_, {}).append(calls_format_.message_end);
  enter(State::kBetween);
}

void AnswerParser::begin_call(std::string_view opening) {
  raw_.append(std::exchange(blanks_, {})).append(opening);
  start_body();
  if (calls_format_.open_is_call || calls_format_.bare_list) {
    raw_.resize(raw_.size() - opening.size());
    for (const char c : opening) body_byte(c);
  }
}

void AnswerParser::start_body() {
  body_ = make_body(calls_format_, options_->types, *this);
  open_call_ = false;
  state_ = State::kBody;
}

void AnswerParser::body_byte(char c) {
  raw_ += c;
  const auto step = body_->push(c);
  if (state_ == State::kEnded || step == CallBody::Step::kMore) return;
  body_.reset();
  if (step == CallBody::Step::kBroken) return break_call();
  raw_.clear();
  enter(State::kBetween);
}

// The text comes back as content. What follows is content, too, up to the next call.
void AnswerParser::break_call() {
  if (std::exchange(open_call_, false)) {
    --calls_;
    append_event(*out_, {.part = Part::kBroken, .text = {}, .call = begun_ - 1});
  }
  ++broken_;
  in_section_ = false;
  skip_blanks_ = false;
  enter(State::kContent);
  text(Part::kContent, std::exchange(raw_, {}));
}

// Outside a section a call's closing mark leads back to content.
void AnswerParser::between_byte(char c) {
  std::string bytes;
  const auto mark = marks_.push(c, bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (separator(bytes[i])) {
      raw_ += bytes[i];
      continue;
    }
    const std::string rest = bytes.substr(i) + marks_.take_pending();
    if (in_section_ && calls_format_.open.empty()) {
      start_body();
    } else {
      leave_calls();
    }
    for (const char b : rest) byte(b);
    return;
  }
  if (mark) between_mark(*mark);
}

// No call follows, but text. What the model has written for the first call comes back, except that
// only the blanks remain of a message's end.
void AnswerParser::leave_calls() {
  in_section_ = false;
  std::string before = std::exchange(raw_, {});
  skip_blanks_ = begun_ > 0;
  if (const auto end = message_end_in(before)) {
    before.erase(0, *end + calls_format_.message_end.find_last_not_of('\n') + 1);
    skip_blanks_ = begun_ > 0 || !has_content_;
  }
  enter(State::kContent);
  if (begun_ == 0) text(Part::kContent, before);
}

std::optional<size_t> AnswerParser::message_end_in(std::string_view text) const {
  if (calls_format_.message_end.empty()) return std::nullopt;
  const size_t at = text.find(calls_format_.message_end);
  return at == text.npos ? std::nullopt : std::optional(at);
}

void AnswerParser::between_mark(size_t mark) {
  switch (mark) {
    case kNext:
      return begin_call(calls_format_.open);
    case kNextToo:
      return begin_call(calls_format_.open_too);
    case kMessageEndAgain:
      return end_message();
    case kSectionAgain:
      return begin_section(calls_format_.section);
    case kSectionAgainToo:
      return begin_section(calls_format_.section_too);
    case kSectionEnd:
      in_section_ = false;
      break;
    default:
      if (in_section_ || mark == kFenceEnd) return;
      break;
  }
  raw_.clear();
  skip_blanks_ = true;
  enter(State::kContent);
}

void AnswerParser::begin(std::string_view name, std::string_view id) {
  uint64_t state = seed_ + static_cast<uint64_t>(begun_) * kSplitMixStep;
  std::string call_id(id);
  if (calls_format_.short_ids)
    call_id = id.empty() ? short_id(state) : call_id;
  else if (id.empty())
    call_id = fmt::format("chatcmpl-tool-{:016x}{:016x}", splitmix64(state), splitmix64(state));
  open_call_ = true;
  ++calls_;
  append_event(*out_, {.part = Part::kCallBegin,
                       .text = std::string(name),
                       .id = std::move(call_id),
                       .call = begun_++});
}

void AnswerParser::arguments(std::string_view text) {
  append_event(*out_, {.part = Part::kArguments, .text = std::string(text), .call = begun_ - 1});
}

void AnswerParser::end() {
  append_event(*out_, {.part = Part::kCallEnd, .text = {}, .call = begun_ - 1});
  open_call_ = false;
  raw_.clear();
  if (options_->one_call) state_ = State::kEnded;
}

void AnswerParser::finish(bool whole, AnswerEvents& events) {
  out_ = &events;
  const std::string pending = marks_.take_pending();
  Part last = Part::kContent;
  switch (state_) {
    case State::kReasoning:
      last = Part::kReasoning;
      [[fallthrough]];
    case State::kContent:
      text(last, pending);
      break;
    case State::kBetween:
      if (begun_ > 0 || (pending.empty() && message_end_in(raw_))) break;
      leave_calls();
      text(Part::kContent, pending);
      break;
    case State::kBody:
      if (whole && body_->finish()) break;
      if (!std::ranges::all_of(raw_, separator) && (whole || !open_call_)) break_call();
      break;
    case State::kEnded:
      break;
  }
  append_event(events, {.part = last, .text = std::exchange(blanks_, {})});
  state_ = State::kEnded;
  out_ = nullptr;
}

}  // namespace skiff::answer
