#include "serve/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/utf8.h"

namespace skiff::openai {
namespace {

// OpenAI's value for "very unlikely", because JSON has no infinity.
double finite(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

std::string name_of(Token token, const text::Tokenizer& tokenizer, TokenNames names) {
  return names == TokenNames::kIds ? fmt::format("token_id:{}", token)
                                   : token_text(tokenizer, token);
}

// Writes {token, logprob, bytes of a chat's entry and leaves the object open.
void open_chat_entry(const TokenLogprob& entry, const text::Tokenizer& tokenizer, TokenNames names,
                     JsonWriter& json) {
  json.open_object().key("token").string(name_of(entry.token, tokenizer, names));
  json.key("logprob").number(finite(entry.logprob)).key("bytes").open_array();
  for (unsigned char byte : tokenizer.piece(entry.token)) json.integer(byte);
  json.close_array();
}

// Writes the rest of a chat's entry and leaves the object open.
void write_chat_top(const PositionLogprobs& position, const text::Tokenizer& tokenizer,
                    TokenNames names, JsonWriter& json) {
  json.key("top_logprobs").open_array();
  for (const TokenLogprob& one : position.top) {
    open_chat_entry(one, tokenizer, names, json);
    json.close_object();
  }
  json.close_array();
}

size_t characters(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string token_text(const text::Tokenizer& tokenizer, Token token) {
  const std::string_view piece = tokenizer.piece(token);
  if (is_valid_utf8(piece)) return std::string(piece);
  std::string text;
  for (unsigned char byte : piece)
    text += byte >= 0x20 && byte < 0x7f ? std::string(1, static_cast<char>(byte))
                                        : fmt::format("\\x{:02x}", byte);
  return text;
}

void write_chat_logprobs(const std::vector<PositionLogprobs>& positions,
                         const text::Tokenizer& tokenizer, TokenNames names, JsonWriter& json) {
  json.open_object().key("content").open_array();
  for (const PositionLogprobs& position : positions) {
    open_chat_entry(position.chosen, tokenizer, names, json);
    write_chat_top(position, tokenizer, names, json);
    json.close_object();
  }
  json.close_array().key("refusal").null().close_object();
}

void write_chat_draft_logprobs(const std::vector<DraftLogprobs>& drafts,
                               const text::Tokenizer& tokenizer, TokenNames names,
                               JsonWriter& json) {
  json.open_object().key("content").open_array();
  for (const auto& [at, position] : drafts) {
    open_chat_entry(position.chosen, tokenizer, names, json);
    write_chat_top(position, tokenizer, names, json);
    json.key("position").integer(at).close_object();
  }
  json.close_array().key("refusal").null().close_object();
}

std::string positions_of(const std::vector<DraftLogprobs>& drafts, int first) {
  std::string out = R"("positions":)";
  JsonWriter json(out);
  json.open_array();
  for (const DraftLogprobs& one : drafts) json.integer(first + one.at);
  json.close_array();
  return out;
}

// Two tokens may have the same text: only the likelier one is written. The chosen token is always
// written.
void CompletionLogprobs::write_top(const PositionLogprobs& position, JsonWriter& json) const {
  std::unordered_set<std::string> written;
  json.open_object();
  const auto put = [&](const TokenLogprob& one) {
    const auto [text, is_new] = written.insert(name_of(one.token, tokenizer_, names_));
    if (is_new) json.key(*text).number(finite(one.logprob));
  };
  for (const TokenLogprob& one : position.top) put(one);
  put(position.chosen);
  json.close_object();
}

void CompletionLogprobs::write(JsonWriter& json, std::string_view more) {
  json.open_object().key("tokens").open_array();
  for (const Added& one : added_) json.string(name_of(one.token, tokenizer_, names_));
  json.close_array().key("token_logprobs").open_array();
  for (const Added& one : added_)
    one.position ? json.number(finite(one.position->chosen.logprob)) : json.null();
  json.close_array().key("text_offset").open_array();
  for (const Added& one : added_) {
    json.integer(static_cast<int64_t>(offset_));
    offset_ += characters(tokenizer_.piece(one.token));
  }
  json.close_array().key("top_logprobs");
  if (with_top_) {
    json.open_array();
    for (const Added& one : added_)
      one.position ? write_top(*one.position, json) : static_cast<void>(json.null());
    json.close_array();
  } else {
    json.null();
  }
  if (!more.empty()) json.members(more);
  json.close_object();
  added_.clear();
}

void write_prompt_logprobs(const std::vector<PositionLogprobs>& positions,
                           const text::Tokenizer& tokenizer, JsonWriter& json) {
  json.open_array().null();
  for (const PositionLogprobs& position : positions) {
    bool has_chosen = false;
    const auto put = [&](const TokenLogprob& one, int rank) {
      has_chosen |= one.token == position.chosen.token;
      json.key(fmt::format_int(one.token).c_str()).open_object();
      json.key("logprob").number(finite(one.logprob)).key("rank").integer(rank);
      json.key("decoded_token").string(token_text(tokenizer, one.token)).close_object();
    };
    json.open_object();
    int rank = 0;
    for (const TokenLogprob& one : position.top) put(one, ++rank);
    if (!has_chosen) put(position.chosen, position.rank);
    json.close_object();
  }
  json.close_array();
}

}  // namespace skiff::openai
