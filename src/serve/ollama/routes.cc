#include "serve/ollama/routes.h"

#include <openssl/sha.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "serve/ollama/embed.h"
#include "serve/ollama/to_chat.h"
#include "serve/ollama/writer.h"
#include "serve/openai/body.h"
#include "serve/openai/failures.h"
#include "serve/pooling/exchange.h"

namespace skiff::ollama {
namespace {

// The version of Ollama whose API this is. Clients refuse servers that are too old for them.
constexpr char kApiVersion[] = "0.12.6";

constexpr turn::FieldName kRenamed[] = {{"max_tokens", "options.num_predict"},
                                        {"repetition_penalty", "options.repeat_penalty"},
                                        {"temperature", "options.temperature"},
                                        {"top_p", "options.top_p"},
                                        {"top_k", "options.top_k"},
                                        {"min_p", "options.min_p"},
                                        {"stop", "options.stop"},
                                        {"presence_penalty", "options.presence_penalty"},
                                        {"frequency_penalty", "options.frequency_penalty"},
                                        {"seed", "options.seed"},
                                        {"response_format", "format"},
                                        {"reasoning_effort", "think"},
                                        {"chat_template", "template"}};

class Protocol : public turn::TurnProtocol {
 public:
  std::span<const turn::FieldName> renamed() const override { return kRenamed; }
  explicit Protocol(Endpoint endpoint) : endpoint_(endpoint) {}

  Result<OrderedJson> to_chat(const OrderedJson& body) const override {
    return ollama::to_chat(body, endpoint_);
  }
  http::HttpResponse refusal(const http::ApiError& error, const std::string&) const override {
    return {.status = error.status, .body = error_text(error), .headers = error.headers};
  }
  std::unique_ptr<turn::TurnWriter> writer(turn::TurnInfo info,
                                           const turn::TurnBody&) const override {
    return make_writer(std::move(info), endpoint_);
  }

 private:
  const Endpoint endpoint_;
};

// What the handlers of one server share.
struct Shared {
  service::ProtocolContext& context;
  ModelCard card;
};

http::HttpResponse refuse(const http::ApiError& error) {
  return {.status = error.status, .body = error_text(error), .headers = error.headers};
}

// Ollama names models by digests of their files; a served model has none, so its name's is told.
std::string digest_of(const std::string& name) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> bytes;
  SHA256(reinterpret_cast<const unsigned char*>(name.data()), name.size(), bytes.data());
  std::string hex;
  for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

Json details(const Shared& shared) {
  const ModelCard& card = shared.card;
  return {{"parent_model", ""},
          {"format", "safetensors"},
          {"family", card.architecture},
          {"families", {card.architecture}},
          {"parameter_size", ""},
          {"quantization_level", card.quantization.empty() ? card.dtype : card.quantization}};
}

Json model_json(const Shared& shared) {
  const std::string& name = shared.context.config.model_names.front();
  const auto started = std::chrono::system_clock::from_time_t(shared.context.started);
  return {{"name", name},
          {"model", name},
          {"modified_at", time_text(started)},
          {"size", 0},
          {"digest", digest_of(name)},
          {"details", details(shared)}};
}

http::HttpResponse tags(const Shared& shared) {
  return http::json_response({{"models", Json::array({model_json(shared)})}});
}

http::HttpResponse running(const Shared& shared) {
  Json model = model_json(shared);
  model["expires_at"] = "9999-12-31T23:59:59Z";  // it stays as long as the server
  model["size_vram"] = 0;
  model["context_length"] = shared.context.service.max_model_len();
  return http::json_response({{"models", Json::array({std::move(model)})}});
}

http::HttpResponse version(const Shared& shared) {
  return http::json_response({{"version", kApiVersion}, {"skiff", shared.card.version}});
}

http::HttpResponse show(const Shared& shared, const http::HttpRequest& request) {
  const auto json = openai::read_body(request);
  if (const auto* error = std::get_if<http::ApiError>(&json)) return refuse(*error);
  const OrderedJson& body = *std::get<JsonOwner<OrderedJson>>(json);
  if (auto error = check_model_name(body)) return refuse(http::api_error(*error, "model"));
  if (auto error = openai::check_model(shared.context.admission, model_name(body)))
    return refuse(*error);
  const std::string& arch = shared.card.architecture;
  Json capabilities = Json::array({"completion"});
  if (shared.card.calls) capabilities.push_back("tools");
  if (shared.card.thinks) capabilities.push_back("thinking");
  return http::json_response(
      {{"modelfile", ""},
       {"parameters", ""},
       {"template", ""},
       {"modified_at", model_json(shared)["modified_at"]},
       {"details", details(shared)},
       {"model_info",
        {{"general.architecture", arch},
         {arch + ".context_length", shared.context.service.max_model_len()}}},
       {"capabilities", std::move(capabilities)}});
}

// The route of a generation, but that a request which only loads the model is answered at once.
http::Route generation(const char* path, Endpoint endpoint, const Protocol& protocol,
                       const std::shared_ptr<Shared>& shared, const http::ApiKeys& keys) {
  constexpr size_t kMaxLoading = 512;  // bytes of such a request; larger ones are not looked at
  http::Route route = turn::turn_route(path, protocol, shared->context, keys);
  route.handler = [shared, endpoint, answer = std::move(route.handler)](
                      http::HttpRequest request, std::shared_ptr<http::HttpReply> reply) {
    if (request.body.size() <= kMaxLoading) {
      const auto body = parse_ordered_json(request.body);
      if (body && (*body).is_object() && only_loads(*body, endpoint)) {
        if (auto error = check_model_name(*body))
          return reply->send(refuse(http::api_error(*error, "model")));
        const std::string name = model_name(*body);
        if (auto error = openai::check_model(shared->context.admission, name))
          return reply->send(refuse(*error));
        return reply->send(
            {.status = 200,
             .body = loaded_text(openai::model_of(shared->context, name), endpoint)});
      }
    }
    answer(std::move(request), std::move(reply));
  };
  return route;
}

struct Absent {
  const char* method;
  const char* path;
  const char* why;
};

constexpr char kOneModel[] = "this server has the model that it was started with";
constexpr Absent kAbsent[] = {
    {"POST", "/api/pull", kOneModel},     {"POST", "/api/push", kOneModel},
    {"POST", "/api/create", kOneModel},   {"POST", "/api/copy", kOneModel},
    {"DELETE", "/api/delete", kOneModel}, {"GET", "/api/blobs/*", kOneModel},
    {"POST", "/api/blobs/*", kOneModel},
};

}  // namespace

std::vector<http::Route> ollama_routes(service::ProtocolContext& context, const http::ApiKeys& keys,
                                       ModelCard card) {
  static const Protocol chats(Endpoint::kChat), prompts(Endpoint::kGenerate);
  const auto shared = std::make_shared<Shared>(Shared{context, std::move(card)});
  const auto get = [&](const char* path, http::HttpResponse (*make)(const Shared&)) {
    return http::Route{.method = "GET",
                       .path = path,
                       .handler = [shared, make](const http::HttpRequest&, auto reply) {
                         reply->send(make(*shared));
                       }};
  };
  std::vector<http::Route> routes = {
      generation("/api/chat", Endpoint::kChat, chats, shared, keys),
      generation("/api/generate", Endpoint::kGenerate, prompts, shared, keys),
      pooling::route_of("/api/embed", embed_kind(), context, keys),
      pooling::route_of("/api/embeddings", embedding_kind(), context, keys),
      get("/api/tags", tags),
      get("/api/ps", running),
      get("/api/version", version),
      get("/",
          [](const Shared&) {
            return http::HttpResponse{.status = 200,
                                      .body = "Ollama is running",
                                      .content_type = "text/plain; charset=utf-8"};
          }),
      {"POST", "/api/show",
       [shared](const http::HttpRequest& request, auto reply) {
         reply->send(show(*shared, request));
       }},
  };
  for (const Absent& absent : kAbsent)
    routes.push_back({absent.method, absent.path,
                      [why = absent.why](const http::HttpRequest& request, auto reply) {
                        reply->send(
                            refuse(http::api_error(501, fmt::format("{}: {}", request.path, why))));
                      }});
  return routes;
}

}  // namespace skiff::ollama
