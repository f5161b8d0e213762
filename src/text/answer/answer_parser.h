// text/answer/answer_parser.h -- splits an answer, while it is generated, into reasoning, content
// and tool calls.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/answer/answer_event.h"
#include "text/answer/answer_format.h"
#include "text/answer/call_body.h"
#include "text/answer/mark_finder.h"
#include "text/answer/tool_types.h"

namespace skiff::answer {

struct AnswerOptions {
  AnswerFormats formats;
  bool starts_in_reasoning = false;  // the prompt ends inside it
  bool one_call = false;             // the answer ends with its first call
  ToolTypes types;
};

// The events do not depend on how the text is cut, except for the cuts between pieces of text. Text
// is withheld only while it may be part of a mark, or is white space that a mark would end. Blanks
// beside marks belong to nothing. Work is linear in the text, memory at most what is withheld and
// the call under way. One per answer; not thread-safe.
class AnswerParser : private CallSink {
 public:
  // The ids of calls follow from `seed`.
  AnswerParser(std::shared_ptr<const AnswerOptions> options, uint64_t seed);

  // Takes the text of the next token, which is empty if it has none yet.
  void push(std::string_view text, AnswerEvents& events);
  // Takes text that is no further token of the model's: what was withheld of one, or was put in.
  void append(std::string_view text, AnswerEvents& events);
  // The answer ends. If `whole`, the model has ended it: an unfinished call is broken. Otherwise it
  // was cut off, and the call stays as far as it is.
  void finish(bool whole, AnswerEvents& events);

  // The answer has its only call: what the model writes from here on is dropped.
  bool ended() const { return state_ == State::kEnded; }
  bool in_reasoning() const { return state_ == State::kReasoning; }
  // Counts the tokens that were pushed while the answer was, and remained, inside the reasoning.
  int reasoning_tokens() const { return reasoning_tokens_; }
  // Counts the calls that were begun and not broken.
  int calls() const { return calls_; }
  int broken() const { return broken_; }

 private:
  enum class State {
    kReasoning,
    kContent,
    kBody,     // inside a call
    kBetween,  // behind a call, or in a section and before one
    kEnded,
  };
  enum Mark : size_t {  // kContent
    kSection,
    kOpen,
    kThink,
    kWrap,
    kWrapEnd,
    kSectionToo,
    kOpenToo,
    kMessageEnd
  };
  enum BetweenMark : size_t {
    kClose,
    kNext,
    kSectionEnd,
    kFenceEnd,
    kSectionAgain,
    kSectionAgainToo,
    kNextToo,
    kMessageEndAgain
  };

  void byte(char c);
  void reasoning_byte(char c);
  void content_byte(char c);
  void between_byte(char c);
  void body_byte(char c);
  void text(Part part, std::string_view bytes);
  void content_mark(size_t mark);
  void between_mark(size_t mark);
  void enter(State state);
  void section_mark(std::string_view mark);
  void open_mark(std::string_view mark);
  void list_mark();
  void begin_section(std::string_view opening);
  void end_message();
  void leave_calls();
  std::optional<size_t> message_end_in(std::string_view text) const;
  void begin_call(std::string_view opening);
  void start_body();
  void break_call();
  bool calls_allowed() const;

  void begin(std::string_view name, std::string_view id) override;
  void arguments(std::string_view text) override;
  void end() override;

  const std::shared_ptr<const AnswerOptions> options_;
  const uint64_t seed_;
  const CallFormat calls_format_;
  const ReasoningFormat reasoning_format_;
  State state_ = State::kContent;
  MarkFinder marks_;
  std::unique_ptr<CallBody> body_;
  std::string blanks_;  // white space that counts only if text follows
  std::string raw_;     // what the model has written of the call under way
  bool skip_blanks_ = false, has_content_ = false, has_reasoning_ = false;
  bool reasoned_ = false;  // the reasoning has ended; there is no second one
  bool in_section_ = false, wrapped_ = false, open_call_ = false;
  int begun_ = 0, calls_ = 0, broken_ = 0, reasoning_tokens_ = 0;
  AnswerEvents* out_ = nullptr;  // during push() and finish()
};

}  // namespace skiff::answer
