#include "serve/openai/failures.h"

namespace skiff::openai {

std::string model_of(const service::ProtocolContext& context, const std::string& asked) {
  return asked.empty() || asked == "default" ? context.config.model_names.front() : asked;
}

namespace {

// The error for a request that ran out of time. If it was running, a retry would take as long
// again; if it was waiting, the load may be lower by then.
http::ApiError too_late(const service::Reply& reply) {
  const bool waited = reply.refusal == service::Refusal::kWaitingTime;
  http::ApiError error = http::api_error(waited ? 429 : 504, reply.why);
  error.type = "timeout_error";
  error.code = "timeout";
  if (waited) return http::retry_later(std::move(error), reply.retry_seconds);
  error.headers.emplace_back("x-should-retry", "false");
  return error;
}

// A retry would bring back what the operator has ended; during a pause another server may take it.
http::ApiError ended_by_operator(const service::Reply& reply) {
  constexpr int kRetrySeconds = 5;
  http::ApiError error = http::api_error(503, reply.why);
  if (reply.refusal == service::Refusal::kPaused)
    return http::retry_later(std::move(error), kRetrySeconds);
  error.code = "aborted";
  error.headers.emplace_back("x-should-retry", "false");
  return error;
}

}  // namespace

// The engine queues what must wait and refuses only what can never run, so a retry would not help,
// unless the server goes down: then another server may take the request.
http::ApiError why_ended(const service::ProtocolContext& context, const service::Reply& reply) {
  if (reply.finish == Finish::kCancelled)
    return http::api_error(503, "the request was cancelled by the server");
  if (reply.refusal == service::Refusal::kWaitingTime ||
      reply.refusal == service::Refusal::kTimeout)
    return too_late(reply);
  if (reply.refusal == service::Refusal::kPaused || reply.refusal == service::Refusal::kAborted)
    return ended_by_operator(reply);
  const bool closing = reply.refusal == service::Refusal::kStopping ||
                       context.admission.draining() || !context.service.health();
  return http::api_error(closing ? 503 : 400,
                         reply.why.empty() ? "the server has no room for this request" : reply.why);
}

// A router passes a request that was answered 503 on to the next server. It must not do so with one
// that an engine has failed on, because the request may be the cause.
http::ApiError why_cut_off(service::CutOff why) {
  if (why == service::CutOff::kEngineFailed)
    return http::api_error(500, "the engine of this server has failed, and the server ends");
  return http::api_error(503, "the server is shutting down");
}

}  // namespace skiff::openai
