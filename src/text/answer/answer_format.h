// text/answer/answer_format.h -- how the answers of a model family are written, as data: one row of
// a table for each format of tool calls, and one for each of reasoning.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::answer {

// The notation between the marks of a call.
enum class Notation {
  kJson,    // {"name": ..., "arguments": {...}}, or a list of such objects
  kNamed,   // the name, a mark, the arguments as a JSON object
  kTagged,  // the name, then each argument between marks, typed by the tool's schema
  kPython,  // [f(a=1), g()]
};

// Marks are texts; an empty one does not occur. An answer has calls one after the other:
//   section (open call close)... section_end
// `open` may come without a section. A section without `open` holds calls from its first byte on.
struct CallFormat {
  std::string_view name;
  Notation notation = Notation::kJson;
  std::string_view section = {}, section_end = {};
  std::string_view section_too = {};  // another way to write `section`
  std::string_view open = {}, close = {};
  std::string_view open_too = {};  // another way to write `open`
  bool bare_list = false;          // kJson: a list at the start of the answer needs no mark
  bool open_is_call = false;       // `open` is the first byte of the call itself
  bool only_at_start = false;      // nothing but blanks may stand before the first call
  std::string_view lead = {};      // kNamed: what stands before the name ends with this
  std::string_view id = {};        // kNamed: an id follows, behind the name
  std::string_view name_end = {};
  std::string_view fence = {};  // kNamed: stands before the arguments, and its first three bytes
                                // behind them
  bool name_is_id = false;      // kNamed: functions.NAME:NUMBER
  bool short_ids = false;       // ids are 9 letters and digits
  // kTagged: key KEY key_end ... value VALUE value_end
  std::string_view key = {}, key_end = {}, value = {}, value_end = {};
  // The end of a message, which is no part of the content, whether a call follows or not.
  std::string_view message_end = {};
  // A call that begins inside the reasoning with one of these ends it, as models of the family may
  // go on to their calls without the mark.
  std::string_view ends_reasoning = {}, ends_reasoning_too = {};
  bool may_lack_value_end = false;  // kTagged: models forget it before the next key or the close
};

struct ReasoningFormat {
  std::string_view name;
  std::string_view begin, end;
  // Marks around the content, which are no part of it. No call begins between or behind them.
  std::string_view content = {}, content_end = {};
};

// Names the formats with which an answer is read. A part whose format is null stays in the content.
struct AnswerFormats {
  const ReasoningFormat* reasoning = nullptr;
  const CallFormat* calls = nullptr;
};

// Looks a parser up by the names of FastDeploy, vLLM and SGLang; "none" and "" give null. An error
// lists the names.
Result<const CallFormat*> find_call_format(std::string_view name);
Result<const ReasoningFormat*> find_reasoning_format(std::string_view name);

// The formats that a model's chat template shows: the marks that it writes before the calls and the
// reasoning of an answer in the history.
const CallFormat* detect_call_format(std::string_view chat_template);
const ReasoningFormat* detect_reasoning_format(std::string_view chat_template);

// All rows, for tests.
const std::vector<CallFormat>& call_formats();
const std::vector<ReasoningFormat>& reasoning_formats();
// All marks of a format.
std::vector<std::string_view> marks_of(const CallFormat& format);
std::vector<std::string_view> marks_of(const ReasoningFormat& format);

}  // namespace skiff::answer
