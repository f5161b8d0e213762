// POST /tokenize and /detokenize in vLLM's shapes: the tokens of a prompt, and the text of tokens.
#include <algorithm>
#include <initializer_list>

#include "serve/openai/body.h"
#include "serve/openai/logprobs.h"
#include "serve/openai/params.h"
#include "serve/openai/routes.h"
#include "serve/openai/shape.h"
#include "serve/openai/values.h"

namespace skiff::openai {
namespace {

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

// Reads optional fields of one body and keeps the first error.
class OptionalFields {
 public:
  explicit OptionalFields(const OrderedJson& body) : body_(body) {}

  // Calls `read(value)`, which returns a MaybeProblem, if the field is present.
  template <class Read>
  void field(const char* name, Read read) {
    const auto found = body_.find(name);
    if (error_ || found == body_.end() || found->is_null()) return;
    if (auto problem = read(*found))
      error_ = Error{problem->code, fmt::format("{} {}", name, problem->what), name};
  }
  void boolean(const char* name, bool& out) {
    field(name, [&](const OrderedJson& value) { return read_boolean(value, out); });
  }
  void string(const char* name, std::string& out) {
    field(name, [&](const OrderedJson& value) { return read_string(value, out); });
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const OrderedJson& body_;
  std::optional<Error> error_;
};

struct TokenizeCall {
  std::string model;
  service::Request request;
  bool token_strings = false;
  std::vector<std::string> unknown_fields;
};

// The body's fields that are none of `known`, as many as are worth telling.
std::vector<std::string> unknown_of(const OrderedJson& body,
                                    std::initializer_list<std::string_view> known) {
  constexpr size_t kMaxNames = 16, kMaxBytes = 64;
  std::vector<std::string> unknown;
  for (const auto& [name, value] : body.items())
    if (std::ranges::find(known, name) == known.end() && unknown.size() < kMaxNames)
      unknown.push_back(name.substr(0, kMaxBytes));
  return unknown;
}

// A conversation has the tokens that a chat with the same body would have, so all fields of a chat
// may come with it, and mean what they mean there.
std::optional<Error> read_conversation(const OrderedJson& body,
                                       const service::SamplingDefaults& defaults,
                                       TokenizeCall& call) {
  auto chat = parse_openai_call(body, Endpoint::kChat, defaults);
  if (!chat) return chat.error();
  call.request = std::move(chat->request);
  call.request.input = std::move(chat->prompts.front());
  call.unknown_fields = std::move(chat->unknown_fields);
  std::erase_if(call.unknown_fields, [](const std::string& name) {
    return name == "prompt" || name == "return_token_strs";
  });
  return std::nullopt;
}

std::optional<Error> read_text(const OrderedJson& body, TokenizeCall& call) {
  OptionalFields fields(body);
  std::string text;
  fields.string("prompt", text);
  fields.boolean("add_special_tokens", call.request.add_special);
  call.request.input = std::move(text);
  call.unknown_fields =
      unknown_of(body, {"model", "prompt", "messages", "add_special_tokens", "return_token_strs"});
  return fields.error();
}

Result<TokenizeCall> read_tokenize(const OrderedJson& body,
                                   const service::SamplingDefaults& defaults) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  const auto given = [&](const char* name) {
    return body.contains(name) && !body.at(name).is_null();
  };
  const bool chat = given("messages");
  if (!chat && !given("prompt"))
    return Error{Code::kNotFound, "prompt or messages is required", "prompt"};
  if (chat && given("prompt"))
    return invalid("prompt", "only one of prompt and messages can be given");
  TokenizeCall call;
  OptionalFields fields(body);
  fields.string("model", call.model);
  fields.boolean("return_token_strs", call.token_strings);
  if (fields.error()) return *fields.error();
  if (auto error = chat ? read_conversation(body, defaults, call) : read_text(body, call))
    return *error;
  return call;
}

// Writes without a Json tree: there may be millions of tokens.
http::HttpResponse tokens_response(const service::ProtocolContext& context,
                                   const std::vector<Token>& tokens, bool strings) {
  http::HttpResponse response;
  JsonWriter json(response.body);
  json.open_object().key("count").integer(std::ssize(tokens));
  json.key("max_model_len").integer(context.service.max_model_len()).key("tokens");
  write_token_ids(tokens, json);
  json.key("token_strs");
  if (strings) {
    json.open_array();
    for (Token token : tokens) json.string(token_text(context.service.tokenizer(), token));
    json.close_array();
  } else {
    json.null();
  }
  json.close_object();
  return response;
}

http::HttpResponse tokenize(const service::ProtocolContext& context, const OrderedJson& body) {
  auto call = read_tokenize(body, context.config.defaults);
  if (!call) return http::error_response(http::api_error(call.error(), "prompt"));
  if (auto error = check_unknown(context.config, call->unknown_fields))
    return http::error_response(*error);
  if (auto error = check_model(context.admission, call->model)) return http::error_response(*error);
  if (auto error = check_policy(context.config.policy, call->request))
    return http::error_response(*error);
  const bool chat = std::holds_alternative<text::Conversation>(call->request.input);
  const auto tokens = context.service.tokenize(call->request);
  if (!tokens)
    return http::error_response(http::api_error(tokens.error(), chat ? "messages" : "prompt"));
  return tokens_response(context, *tokens, call->token_strings);
}

// Bounds the text and not the list, as /tokenize does: a token of two digits may stand for a
// hundred bytes.
std::optional<Error> check_ids(const std::vector<Token>& tokens, const service::Service& service) {
  const text::Tokenizer& tokenizer = service.tokenizer();
  const size_t most = service::Service::max_text(service.max_model_len());
  size_t bytes = 0;
  for (Token token : tokens) {
    if (token >= tokenizer.vocab_size())
      return invalid("tokens", fmt::format("tokens has id {}, but the vocabulary is [0, {})", token,
                                           tokenizer.vocab_size()));
    bytes += tokenizer.piece(token).size();
  }
  if (bytes <= most) return std::nullopt;
  return invalid("tokens", fmt::format("The text of tokens has {} bytes; at most {} are possible. "
                                       "Send them in parts.",
                                       bytes, most));
}

http::HttpResponse detokenize(const service::ProtocolContext& context, const OrderedJson& body) {
  const auto refuse = [](const Error& error) {
    return http::error_response(http::api_error(error, "tokens"));
  };
  if (!body.is_object()) return refuse(invalid("", "the body must be a JSON object"));
  std::string model;
  std::optional<std::vector<Token>> tokens;
  OptionalFields fields(body);
  fields.string("model", model);
  fields.field("tokens",
               [&](const OrderedJson& value) { return read_token_ids(value, tokens.emplace()); });
  if (fields.error()) return refuse(*fields.error());
  if (!tokens) return refuse({Code::kNotFound, "tokens is required", "tokens"});
  if (auto error = check_unknown(context.config, unknown_of(body, {"model", "tokens"})))
    return http::error_response(*error);
  if (auto error = check_model(context.admission, model)) return http::error_response(*error);
  const text::Tokenizer& tokenizer = context.service.tokenizer();
  if (auto error = check_ids(*tokens, context.service)) return refuse(*error);
  http::HttpResponse response;
  JsonWriter json(response.body);
  json.open_object().key("prompt");
  json.string(tokenizer.decode(*tokens, /*skip_special=*/false)).close_object();
  return response;
}

}  // namespace

std::vector<http::Route> tokenize_routes(service::ProtocolContext& context) {
  const auto answer =
      [&context](http::HttpResponse (*make)(const service::ProtocolContext&, const OrderedJson&)) {
        return [&context, make](const http::HttpRequest& request,
                                const std::shared_ptr<http::HttpReply>& reply) {
          const auto body = read_body(request);
          const auto* json = std::get_if<JsonOwner<OrderedJson>>(&body);
          reply->send(json ? make(context, **json)
                           : http::error_response(std::get<http::ApiError>(body)));
        };
      };
  return {
      {"POST", "/tokenize", answer(tokenize)},
      {"POST", "/v1/tokenize", answer(tokenize)},
      {"POST", "/detokenize", answer(detokenize)},
      {"POST", "/v1/detokenize", answer(detokenize)},
  };
}

}  // namespace skiff::openai
