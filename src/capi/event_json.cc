#include "capi/event_json.h"

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "capi/unix_time.h"
#include "serve/openai/logprobs.h"
#include "serve/openai/shape.h"
#include "serve/pooling/write.h"
#include "serve/service/pooled_model.h"

namespace skiff::capi {
namespace {

// OpenAI's value for "very unlikely", because JSON has no infinity.
double finite(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

void write_logprob(const TokenLogprob& one, const text::Tokenizer& tokenizer, JsonWriter& json) {
  json.key("token_id").integer(one.token).key("logprob").number(finite(one.logprob));
  json.key("decoded_token").string(openai::token_text(tokenizer, one.token));
}

void write_position(const PositionLogprobs& position, const text::Tokenizer& tokenizer,
                    JsonWriter& json) {
  write_logprob(position.chosen, tokenizer, json);
  json.key("rank").integer(position.rank).key("top").open_array();
  for (const TokenLogprob& one : position.top) {
    json.open_object();
    write_logprob(one, tokenizer, json);
    json.close_object();
  }
  json.close_array();
}

void write_logprobs(const char* name, const std::vector<PositionLogprobs>& positions,
                    const text::Tokenizer& tokenizer, JsonWriter& json) {
  if (positions.empty()) return;
  json.key(name).open_array();
  for (const PositionLogprobs& position : positions) {
    json.open_object();
    write_position(position, tokenizer, json);
    json.close_object();
  }
  json.close_array();
}

void write_draft_logprobs(const std::vector<DraftLogprobs>& drafts,
                          const text::Tokenizer& tokenizer, JsonWriter& json) {
  if (drafts.empty()) return;
  json.key("draft_logprobs").open_array();
  for (const DraftLogprobs& one : drafts) {
    json.open_object().key("position").integer(one.at);
    write_position(one.logprobs, tokenizer, json);
    json.close_object();
  }
  json.close_array();
}

void write_parts(const Piece& piece, openai::ChatParts& parts, JsonWriter& json) {
  if (!piece.call->asked.stream) {
    json.key("message").open_object().key("role").string("assistant");
    parts.write_message(piece.reply.parts, json);
    json.close_object();
    return;
  }
  json.key("deltas").open_array();
  for (const std::string& delta : parts.deltas(piece.reply.parts))
    json.open_object().members(delta).close_object();
  json.close_array();
}

bool is_failure(Finish finish) {
  return finish == Finish::kExhausted || finish == Finish::kCancelled;
}

const char* finish_name(Finish finish, bool has_calls) {
  if (finish == Finish::kLength) return "length";
  return has_calls ? "tool_calls" : "stop";
}

void write_end(const Piece& piece, bool has_calls, JsonWriter& json) {
  const service::Usage& usage = piece.reply.usage;
  json.key("finish_reason").string(finish_name(piece.reply.finish, has_calls));
  json.key("stop_reason");
  openai::write_stop_reason(piece.reply, json);
  json.key("usage").open_object().key("prompt_tokens").integer(usage.prompt);
  json.key("completion_tokens").integer(usage.completion);
  json.key("cached_tokens").integer(usage.cached);
  json.key("reasoning_tokens").integer(usage.reasoning).close_object();
  json.key("metrics").open_object().key("arrival_time").number(piece.call->arrived);
  json.key("first_token_time").number(piece.first_token);
  json.key("finished_time").number(unix_time()).close_object();
}

const char* error_code(const service::Reply& reply) {
  using enum service::Refusal;
  if (reply.finish == Finish::kCancelled) return "internal";
  switch (reply.refusal) {
    case kStopping:
      return "closed";
    case kTimeout:
    case kWaitingTime:
      return "timeout";
    default:
      return "exhausted";
  }
}

void write_failure(const service::Reply& reply, JsonWriter& json) {
  const bool cancelled = reply.finish == Finish::kCancelled;
  json.key("finish_reason").string(cancelled ? "abort" : "error");
  json.key("error").open_object().key("code").string(error_code(reply));
  json.key("message").string(!reply.why.empty() ? reply.why
                             : cancelled        ? "the request was cancelled by the engine"
                                                : "the engine has no room for this request");
  json.close_object();
}

void write_fault(const char* message, JsonWriter& json) {
  json.key("finish_reason").string("error").key("error").open_object();
  json.key("code").string("internal").key("message").string(message).close_object();
}

void write_pooled(const Piece& piece, JsonWriter& json) {
  const Pooled& form = *piece.call->pooled;
  const std::vector<float> vector =
      form.classes ? service::class_scores(piece.reply.pooled, form.activation)
                   : service::embedding_of(piece.reply.pooled, form.dimensions, form.normalize);
  if (!std::ranges::all_of(vector, [](float x) { return std::isfinite(x); }))
    return write_fault("the model gave a number that is not finite", json);
  json.key(form.classes ? "probs" : "embedding");
  pooling::write_floats(vector, json);
  write_end(piece, /*has_calls=*/false, json);
}

void write_generated(const Piece& piece, const text::Tokenizer& tokenizer, JsonWriter& json) {
  const service::Reply& reply = piece.reply;
  openai::ChatParts& parts = piece.call->parts[static_cast<size_t>(reply.index)];
  json.key("text").string(reply.text).key("token_ids");
  openai::write_token_ids(reply.tokens, json);
  if (piece.call->split) write_parts(piece, parts, json);
  write_logprobs("logprobs", reply.logprobs, tokenizer, json);
  write_draft_logprobs(reply.draft_logprobs, tokenizer, json);
  write_logprobs("prompt_logprobs", reply.prompt_logprobs, tokenizer, json);
  const bool failed = is_failure(reply.finish);
  if (!failed && reply.finish != Finish::kNone) write_end(piece, parts.has_calls(), json);
}

void write_event(Piece& piece, const text::Tokenizer& tokenizer, JsonWriter& json) {
  Call& call = *piece.call;
  const service::Reply& reply = piece.reply;
  json.open_object().key("id").integer(static_cast<int64_t>(call.id));
  json.key("index").integer(reply.index);
  if (!call.prompt.empty()) {
    json.key("prompt_token_ids");
    openai::write_token_ids(std::exchange(call.prompt, {}), json);
  }
  const bool failed = is_failure(reply.finish);
  if (!call.pooled)
    write_generated(piece, tokenizer, json);
  else if (!failed)
    write_pooled(piece, json);
  if (failed) write_failure(reply, json);
  json.key("last").json(piece.last ? "true" : "false").close_object();
  if (piece.last) call.ticket.release();
}

}  // namespace

std::string events_json(std::vector<Piece> pieces, const text::Tokenizer& tokenizer) {
  std::string out;
  JsonWriter json(out);
  json.open_array();
  for (Piece& piece : pieces) write_event(piece, tokenizer, json);
  json.close_array();
  return out;
}

}  // namespace skiff::capi
