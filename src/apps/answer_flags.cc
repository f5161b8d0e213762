#include "apps/answer_flags.h"

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

template <class Format>
const Format* chosen(const Args& args, const char* flag, const std::string& source,
                     Result<const Format*> (*find)(std::string_view),
                     const Format* (*detect)(std::string_view)) {
  const std::string name = args.text(flag);
  if (name == "auto") return detect(source);
  const auto found = find(name);
  if (!found) fail_load("--{}: {}", flag, found.error().what);
  return *found;
}

}  // namespace

answer::AnswerFormats answer_formats(const Args& args, const text::ChatTemplate* chat_template) {
  const std::string source = chat_template ? chat_template->source() : std::string();
  answer::AnswerFormats formats;
  formats.reasoning = chosen(args, "reasoning-parser", source, answer::find_reasoning_format,
                             answer::detect_reasoning_format);
  formats.calls = chosen(args, "tool-call-parser", source, answer::find_call_format,
                         answer::detect_call_format);
  if (!args.on("enable-auto-tool-choice")) formats.calls = nullptr;
  spdlog::info("reasoning is read as {}, tool calls as {}",
               formats.reasoning ? formats.reasoning->name : "content",
               formats.calls ? formats.calls->name : "content");
  return formats;
}

}  // namespace skiff::apps
