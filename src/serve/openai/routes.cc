#include "serve/openai/routes.h"

#include "serve/openai/body.h"
#include "serve/openai/generation.h"

namespace skiff::openai {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// Clients written for vLLM and FastDeploy read it; the values are constant.
Json permission_json(const service::ProtocolContext& context, const std::string& name) {
  return {{"id", "modelperm-" + name},
          {"object", "model_permission"},
          {"created", context.started},
          {"allow_create_engine", false},
          {"allow_sampling", true},
          {"allow_logprobs", true},
          {"allow_search_indices", false},
          {"allow_view", true},
          {"allow_fine_tuning", false},
          {"organization", "*"},
          {"group", nullptr},
          {"is_blocking", false}};
}

Json model_json(const service::ProtocolContext& context, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", context.started},
          {"owned_by", "skiff"},
          {"root", context.config.model_path},
          {"parent", nullptr},
          {"max_model_len", context.service.max_model_len()},
          {"permission", Json::array({permission_json(context, name)})}};
}

// If no name was configured, the folder's path is a second name; listing it would show one model
// twice.
bool is_listed(const service::ProtocolContext& context, const std::string& name) {
  return name == context.config.model_names.front() || name != context.config.model_path;
}

http::HttpResponse list_models(const service::ProtocolContext& context) {
  Json data = Json::array();
  for (const std::string& name : context.config.model_names)
    if (is_listed(context, name)) data.push_back(model_json(context, name));
  return http::json_response({{"object", "list"}, {"data", std::move(data)}});
}

http::HttpResponse one_model(const service::ProtocolContext& context, const std::string& name) {
  for (const std::string& known : context.config.model_names)
    if (known == name) return http::json_response(model_json(context, name));
  return http::error_response(admission_error(context.admission.unknown_model(name)));
}

}  // namespace

std::vector<http::Route> openai_routes(service::ProtocolContext& context, const http::ApiKeys& keys,
                                       const std::shared_ptr<const OtherForm>& other) {
  const auto generation = [&](const char* path, Endpoint endpoint) {
    return http::Route{.method = "POST",
                       .path = path,
                       .handler =
                           [&context, &keys, endpoint, other](
                               http::HttpRequest request, std::shared_ptr<http::HttpReply> reply) {
                             generate(context, keys, endpoint, other.get(), std::move(request),
                                      std::move(reply));
                           },
                       .refuse_when_full = [&context]() -> std::optional<http::HttpResponse> {
                         const auto refused = context.admission.refuse_when_full();
                         if (!refused) return std::nullopt;
                         return http::error_response(admission_error(*refused));
                       }};
  };
  return {
      generation("/v1/chat/completions", Endpoint::kChat),
      generation("/v1/completions", Endpoint::kCompletions),
      // Clients whose base URL is already the path of an endpoint, as PaddleNLP's tutorial has it.
      generation("/v1/chat/completions/chat/completions", Endpoint::kChat),
      generation("/v1/chat/completions/completions", Endpoint::kCompletions),
      generation("/v1/completions/chat/completions", Endpoint::kChat),
      generation("/v1/completions/completions", Endpoint::kCompletions),
      {"GET", "/v1/models",
       [&context](http::HttpRequest, auto reply) { reply->send(list_models(context)); }},
      {"GET", std::string(kModelPrefix) + "*",
       [&context](http::HttpRequest request, auto reply) {
         reply->send(one_model(context, request.path.substr(kModelPrefix.size())));
       }},
  };
}

}  // namespace skiff::openai
