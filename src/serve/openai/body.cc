#include "serve/openai/body.h"

#include "base/log.h"

namespace skiff::openai {

std::variant<JsonOwner<OrderedJson>, http::ApiError> read_body(const http::HttpRequest& request) {
  JsonLimits limits;
  limits.max_bytes = request.body.size();  // bounded by HttpConfig::max_body
  limits.wide = "logit_bias";              // may have one key for each token of a vocabulary
  if (request.body.empty()) {
    http::ApiError error = http::api_error(400, "the body is empty; send a JSON object");
    error.code = "invalid_json";
    return error;
  }
  auto body = parse_ordered_json(request.body, limits);
  if (body) return JsonOwner(std::move(*body));
  http::ApiError error = http::api_error(400, body.error().what);
  error.code = "invalid_json";
  return error;
}

service::SharedTag tag_of(const http::HttpRequest& request, service::RequestTag tag) {
  constexpr size_t kMaxTraceparent = 256;
  tag.route = request.path;
  tag.serial = request.serial;
  tag.traceparent = request.header("traceparent").substr(0, kMaxTraceparent);
  return std::make_shared<const service::RequestTag>(std::move(tag));
}

http::ApiError admission_error(const service::AdmissionRefusal& refusal) {
  using enum service::AdmissionRefusal::Kind;
  switch (refusal.kind) {
    case kConcurrency:
    case kQueueFull:
      return http::retry_later(http::api_error(429, refusal.message), refusal.retry_seconds);
    case kUnknownModel: {
      http::ApiError error = http::api_error(404, refusal.message);
      error.param = "model";
      error.code = "model_not_found";
      return error;
    }
    case kPaused:
      return http::retry_later(http::api_error(503, refusal.message), refusal.retry_seconds);
    case kDraining:
      break;
  }
  return http::api_error(503, refusal.message);
}

std::optional<http::ApiError> check_model(const service::AdmissionControl& admission,
                                          const std::string& name) {
  const auto refused = admission.check_model(name);
  return refused ? std::optional(admission_error(*refused)) : std::nullopt;
}

std::optional<http::ApiError> check_policy(const service::RequestPolicy& policy,
                                           const service::Request& request) {
  const auto refusal = [](const char* field, std::string why) {
    return http::api_error({Code::kUnsupported, std::move(why), field}, "messages");
  };
  // A template without a brace is the name of one of the model's own templates.
  if (!policy.trust_chat_template && request.chat_template.find('{') != std::string::npos)
    return refusal("chat_template",
                   "This server does not run chat templates that come with a request. Leave out "
                   "chat_template, or start the server with --trust-request-chat-template.");
  if (!policy.priority && request.priority != 0)
    return refusal("priority",
                   fmt::format("priority is {}, but this server serves requests in the order of "
                               "their arrival. Leave it out, or start the server with "
                               "--scheduling-policy priority.",
                               request.priority));
  return std::nullopt;
}

std::optional<http::ApiError> check_unknown(const service::ProtocolConfig& config,
                                            const std::vector<std::string>& fields) {
  if (fields.empty()) return std::nullopt;
  if (config.refuse_unknown_fields) {
    http::ApiError error = http::api_error(400, "there is no field \"" + fields.front() + "\"");
    error.param = fields.front();
    error.code = "unknown_parameter";
    return error;
  }
  if (spdlog::should_log(spdlog::level::debug))
    for (const std::string& field : fields)
      spdlog::debug("unknown request field ignored: {}", escaped(field));
  return std::nullopt;
}

}  // namespace skiff::openai
