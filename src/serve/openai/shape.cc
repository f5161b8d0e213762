#include "serve/openai/shape.h"

#include <iterator>

namespace skiff::openai {

std::string_view finish_reason(Finish finish) {
  switch (finish) {
    case Finish::kNone:
      return "null";
    case Finish::kLength:
      return R"("length")";
    default:
      return R"("stop")";
  }
}

void write_stop_reason(const service::Reply& reply, JsonWriter& json) {
  if (const auto* text = std::get_if<std::string>(&reply.stop_reason))
    json.string(*text);
  else if (const auto* token = std::get_if<Token>(&reply.stop_reason))
    json.integer(*token);
  else
    json.null();
}

void write_token_ids(const std::vector<Token>& tokens, JsonWriter& json) {
  json.open_array();
  for (Token token : tokens) json.integer(token);
  json.close_array();
}

Json usage_json(const service::Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details",
           {{"reasoning_tokens", usage.reasoning},
            {"accepted_prediction_tokens", usage.accepted},
            {"rejected_prediction_tokens", usage.rejected}}}};
}

void append(service::Reply& whole, service::Reply piece) {
  const auto move_into = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  whole.text += piece.text;
  for (answer::AnswerEvent& event : piece.parts)
    answer::append_event(whole.parts, std::move(event));
  move_into(whole.tokens, piece.tokens);
  move_into(whole.logprobs, piece.logprobs);
  move_into(whole.draft_logprobs, piece.draft_logprobs);
  move_into(whole.prompt_logprobs, piece.prompt_logprobs);
  if (piece.finish == Finish::kNone) return;
  whole.finish = piece.finish;
  whole.stop_reason = std::move(piece.stop_reason);
}

}  // namespace skiff::openai
