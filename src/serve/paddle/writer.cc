#include "serve/paddle/writer.h"

#include <fmt/chrono.h>

#include "base/json_writer.h"

namespace skiff::paddle {
namespace {

using SystemClock = std::chrono::system_clock;

// Returns the time of day, in UTC, as Python prints it.
std::string time_text(SystemClock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06}", fmt::gmtime(SystemClock::to_time_t(time)),
                     micros % 1'000'000);
}

void write_ids(const std::vector<Token>& tokens, JsonWriter& json) {
  json.open_array();
  for (const Token token : tokens) json.integer(token);
  json.close_array();
}

void write_usage(int prompt, int completion, JsonWriter& json) {
  json.key("usage").open_object().key("completion_tokens").integer(completion);
  json.key("prompt_tokens").integer(prompt).close_object();
}

// The tokens of a piece that stand for text: the one that ended the reply is left out.
std::vector<Token> visible(const service::Reply& reply) {
  std::vector<Token> tokens = reply.tokens;
  const bool by_text = std::holds_alternative<std::string>(reply.stop_reason);
  if (reply.finish == Finish::kStop && !by_text && !tokens.empty()) tokens.pop_back();
  return tokens;
}

}  // namespace

ReplyWriter::ReplyWriter(ReplyFacts facts)
    : facts_(std::move(facts)), started_(std::chrono::steady_clock::now()) {}

void ReplyWriter::gather(const service::Reply& reply) {
  const std::vector<Token> tokens = visible(reply);
  text_ += reply.text;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  usage_ = reply.own;
}

std::vector<std::string> ReplyWriter::pieces(const service::Reply& reply) {
  gather(reply);
  const bool end = reply.finish != Finish::kNone;
  if (facts_.last_only) {
    if (!end) return {};
    index_ = std::max(usage_.completion - 1, 0);
    return {object({text_, tokens_, usage_.completion, true})};
  }
  // A piece of several tokens is sent as one object for each; the last of them has the text.
  const std::vector<Token> tokens = visible(reply);
  const int before = reply.own.completion - static_cast<int>(reply.tokens.size());
  std::vector<std::string> objects;
  const size_t count = std::max<size_t>(reply.tokens.size(), 1);
  for (size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    std::vector<Token> ids;
    if (i < tokens.size()) ids.push_back(tokens[i]);
    const int so_far = reply.tokens.empty() ? before : before + static_cast<int>(i) + 1;
    objects.push_back(
        object({last ? std::string_view(reply.text) : "", std::move(ids), so_far, last && end}));
    if (!reply.tokens.empty()) ++index_;
  }
  return objects;
}

std::string ReplyWriter::object(const Piece& piece) {
  const std::chrono::duration<double> cost = std::chrono::steady_clock::now() - started_;
  std::string out;
  JsonWriter json(out);
  json.open_object().key("req_id").string(facts_.req_id).key("is_end").integer(piece.end ? 1 : 0);
  json.key("token").string(piece.text).key("token_ids");
  write_ids(piece.tokens, json);
  json.key("send_idx").integer(index_).key("inference_time_cost").number(cost.count());
  json.key("infer_seed").integer(facts_.seed);
  json.key("return_all_tokens").json(facts_.return_all_tokens ? "true" : "false");
  write_usage(usage_.prompt, piece.completion, json);
  if (piece.end) {
    json.key("tokens_all_num").integer(piece.completion).key("tokens_all_ids");
    write_ids(tokens_, json);
    json.key("tokens_all").string(text_);
  }
  if (facts_.benchmark) {
    json.key("preprocess_start_time").string(time_text(facts_.received));
    json.key("preprocess_end_time").string(time_text(facts_.prepared));
    json.key("inference_current_step_time").string(time_text(SystemClock::now()));
    if (facts_.error_fields) json.key("http_received_time").string(time_text(facts_.received));
  }
  if (facts_.error_fields) json.key("error_msg").string("").key("error_code").integer(0);
  json.close_object();
  return out;
}

std::string ReplyWriter::whole(bool usage) const {
  std::string out;
  JsonWriter json(out);
  json.open_object().key("req_id").string(facts_.req_id).key("result").string(text_);
  json.key("tokens_all").string(text_);
  json.key("error_msg").string("").key("error_code").integer(0);
  if (usage) write_usage(usage_.prompt, usage_.completion, json);
  json.close_object();
  return out;
}

std::string error_object(const std::string& req_id, const std::string& why, int code, bool result) {
  // The version that PaddleNLP's server writes here.
  constexpr std::string_view kVersion = "4.6";
  const std::chrono::duration<double> now = SystemClock::now().time_since_epoch();
  std::string out;
  JsonWriter json(out);
  json.open_object().key("req_id").string(req_id).key("error_msg").string(why);
  json.key("error_code").integer(code);
  if (result) json.key("result").string("");
  json.key("version").string(kVersion).key("timestamp").number(now.count()).close_object();
  return out;
}

}  // namespace skiff::paddle
