#include "serve/openai_logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace skiff {
namespace {

// OpenAI's "very unlikely", since JSON has no infinity.
double finite(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

Json bytes_of(std::string_view piece) {
  Json bytes = Json::array();
  for (unsigned char byte : piece) bytes.push_back(byte);
  return bytes;
}

Json chat_entry(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {{"token", token_text(tokenizer, entry.token)},
          {"logprob", finite(entry.logprob)},
          {"bytes", bytes_of(tokenizer.piece(entry.token))}};
}

size_t characters(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, Token token) {
  const std::string_view piece = tokenizer.piece(token);
  if (is_valid_utf8(piece)) return std::string(piece);
  std::string text;
  for (unsigned char byte : piece)
    text += byte >= 0x20 && byte < 0x7f ? std::string(1, static_cast<char>(byte))
                                        : fmt::format("\\x{:02x}", byte);
  return text;
}

Json chat_logprobs(const std::vector<PositionLogprobs>& positions, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entry = chat_entry(position.chosen, tokenizer);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& one : position.top) top.push_back(chat_entry(one, tokenizer));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

CompletionLogprobs::CompletionLogprobs(const Tokenizer& tokenizer, bool with_top)
    : tokenizer_(tokenizer), with_top_(with_top) {}

void CompletionLogprobs::add_token(Token token, Json logprob, Json top) {
  tokens_.push_back(token_text(tokenizer_, token));
  values_.push_back(std::move(logprob));
  top_.push_back(std::move(top));
  offsets_.push_back(offset_);
  offset_ += characters(tokenizer_.piece(token));
}

void CompletionLogprobs::add_unpredicted(Token token) { add_token(token, nullptr, nullptr); }

// Two tokens may have one text; the likelier one is told. The chosen one always is.
void CompletionLogprobs::add(const PositionLogprobs& position) {
  Json top = Json::object();
  for (const TokenLogprob& one : position.top)
    top.emplace(token_text(tokenizer_, one.token), finite(one.logprob));
  top.emplace(token_text(tokenizer_, position.chosen.token), finite(position.chosen.logprob));
  add_token(position.chosen.token, finite(position.chosen.logprob), std::move(top));
}

Json CompletionLogprobs::take() {
  Json out{{"tokens", std::exchange(tokens_, Json::array())},
           {"token_logprobs", std::exchange(values_, Json::array())},
           {"text_offset", std::exchange(offsets_, Json::array())}};
  Json top = std::exchange(top_, Json::array());
  out["top_logprobs"] = with_top_ ? std::move(top) : Json();
  return out;
}

Json prompt_logprobs_json(const std::vector<PositionLogprobs>& positions,
                          const Tokenizer& tokenizer) {
  Json out = Json::array({nullptr});
  for (const PositionLogprobs& position : positions) {
    Json entries = Json::object();
    const auto put = [&](const TokenLogprob& one, int rank) {
      entries.emplace(std::to_string(one.token),
                      Json{{"logprob", finite(one.logprob)},
                           {"rank", rank},
                           {"decoded_token", token_text(tokenizer, one.token)}});
    };
    int rank = 0;
    for (const TokenLogprob& one : position.top) put(one, ++rank);
    put(position.chosen, position.rank);
    out.push_back(std::move(entries));
  }
  return out;
}

}  // namespace skiff
