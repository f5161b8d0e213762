#include "serve/service/answer_split.h"

#include <algorithm>

#include "serve/service/thinking.h"

namespace skiff::service {
namespace {

std::vector<Token> special_in(const std::vector<std::string_view>& marks,
                              const text::Tokenizer& tokenizer) {
  std::vector<Token> out;
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    if (!tokenizer.is_special(token)) continue;
    const std::string_view piece = tokenizer.piece(token);
    const auto holds = [&](std::string_view mark) { return mark.find(piece) != mark.npos; };
    if (!piece.empty() && std::ranges::any_of(marks, holds)) out.push_back(token);
  }
  return out;
}

// The last opening mark has no closing mark behind it.
bool is_open(std::string_view text, const answer::ReasoningFormat& format) {
  const size_t begin = text.rfind(format.begin);
  return begin != text.npos && text.find(format.end, begin) == text.npos;
}

std::string_view without_blanks(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == text.npos ? 0 : last + 1);
}

}  // namespace

AnswerSplit::AnswerSplit(const answer::AnswerFormats& formats, const text::Tokenizer& tokenizer,
                         const text::ChatTemplate* chat_template)
    : formats_(formats),
      tokenizer_(tokenizer),
      off_by_default_(formats.reasoning && chat_template &&
                      is_thinking_off_by_default(*chat_template)) {
  if (formats.reasoning) {
    reasoning_tokens_ = special_in(answer::marks_of(*formats.reasoning), tokenizer);
    reasoning_end_ = tokenizer.encode("\n" + std::string(formats.reasoning->end) + "\n\n",
                                      {.add_special = false, .parse_special = true});
  }
  if (formats.calls) call_tokens_ = special_in(answer::marks_of(*formats.calls), tokenizer);
}

// Only the end of the prompt counts: reasoning in the history, and what users write about marks,
// say nothing about the reply. A reply that the request has begun itself counts as a whole.
bool AnswerSplit::prompt_reasons(const Request& request, const std::vector<Token>& prompt) const {
  const answer::ReasoningFormat& format = *formats_.reasoning;
  if (!request.begun.empty() && is_open(tokenizer_.decode(request.begun, false), format))
    return true;
  if (const auto* conversation = std::get_if<text::Conversation>(&request.input);
      conversation && conversation->continue_final_message) {
    const OrderedJson& last = conversation->messages.back();
    const auto content = last.find("content");
    return content != last.end() && content->is_string() &&
           is_open(content->get_ref<const std::string&>(), format);
  }
  return without_blanks(tail(prompt)).ends_with(format.begin);
}

std::string AnswerSplit::tail(const std::vector<Token>& prompt) const {
  constexpr size_t kTail = 32;  // tokens, which hold a mark and the blanks behind it
  const std::span<const Token> last = std::span(prompt).last(std::min(prompt.size(), kTail));
  return tokenizer_.decode(last, /*skip_special=*/false);
}

Reasoning AnswerSplit::reasoning(const Request& request, const std::vector<Token>& prompt) const {
  const auto* chat = std::get_if<text::Conversation>(&request.input);
  if (!formats_.reasoning || (!chat && !request.split_reasoning) || request.reasoning_budget == 0)
    return Reasoning::kNone;
  if (prompt_reasons(request, prompt)) return Reasoning::kInside;
  const bool begun = !request.begun.empty() || (chat && chat->continue_final_message);
  if (begun || without_blanks(tail(prompt)).ends_with(formats_.reasoning->end))
    return Reasoning::kNone;
  if (!chat) return Reasoning::kMay;
  const bool own_template = !request.chat_template.empty();
  const bool off = off_by_default_ && !own_template;
  return thinking_of(chat->kwargs).value_or(!off) ? Reasoning::kMay : Reasoning::kNone;
}

// Reasoning that the prompt has opened, and that may have no token, ends in the prompt.
void AnswerSplit::bound_reasoning(const Request& request, answer::AnswerOptions& options,
                                  Prepared& prepared) const {
  if (request.reasoning_budget < 0) return;
  prepared.reasoning_budget = request.reasoning_budget;
  prepared.reasoning_end = reasoning_end_;
  if (request.reasoning_budget > 0 || !options.starts_in_reasoning) return;
  options.starts_in_reasoning = false;
  prepared.prompt.insert(prepared.prompt.end(), reasoning_end_.begin(), reasoning_end_.end());
}

// Reasoning keeps to its budget where it is not told apart from the rest of the text, too.
void AnswerSplit::meter_reasoning(const Request& request, Prepared& prepared) const {
  if (request.split_reasoning || request.reasoning_budget < 0 || !formats_.reasoning) return;
  answer::AnswerOptions options{.formats = {.reasoning = formats_.reasoning}};
  options.starts_in_reasoning = prompt_reasons(request, prepared.prompt);
  bound_reasoning(request, options, prepared);
  prepared.metered = std::make_shared<const answer::AnswerOptions>(std::move(options));
  prepared.metered_marks = reasoning_tokens_;
}

void AnswerSplit::set_up(const Request& request, Prepared& prepared) const {
  meter_reasoning(request, prepared);
  answer::AnswerOptions options;
  if (request.split_reasoning) options.formats.reasoning = formats_.reasoning;
  if (request.split_calls) options.formats.calls = formats_.calls;
  if (!options.formats.reasoning && !options.formats.calls) return;
  options.one_call = request.one_call;
  std::vector<Token> shown;
  if (options.formats.reasoning) {
    options.starts_in_reasoning = prompt_reasons(request, prepared.prompt);
    bound_reasoning(request, options, prepared);
    shown = reasoning_tokens_;
  }
  if (options.formats.calls) {
    if (const auto* conversation = std::get_if<text::Conversation>(&request.input))
      options.types = answer::ToolTypes(conversation->tools);
    shown.insert(shown.end(), call_tokens_.begin(), call_tokens_.end());
  }
  prepared.answer = std::make_shared<const answer::AnswerOptions>(std::move(options));
  prepared.shown = std::move(shown);
}

}  // namespace skiff::service
