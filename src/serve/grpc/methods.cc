#include "serve/grpc/methods.h"

#include <algorithm>

namespace skiff::grpc {
namespace {

using enum http::Access;

#define KSERVE "/inference.GRPCInferenceService/"
#define HEALTH "/grpc.health.v1.Health/"

// What orchestrators ask is open, as it is over HTTP.
constexpr Method kMethods[] = {
    {KSERVE "ServerLive", kOpen, false, server_live},
    {KSERVE "ServerReady", kOpen, false, server_ready},
    {KSERVE "ServerMetadata", kKey, false, server_metadata_call},
    {KSERVE "ModelReady", kKey, false, model_ready},
    {KSERVE "ModelMetadata", kKey, false, model_metadata_call},
    {KSERVE "ModelConfig", kKey, false, model_config_call},
    {KSERVE "ModelInfer", kKey, false, model_infer},
    {KSERVE "ModelStreamInfer", kKey, true, model_stream_infer},
    {HEALTH "Check", kOpen, false, health_check},
    {HEALTH "Watch", kOpen, false, health_watch},
};

#undef KSERVE
#undef HEALTH

}  // namespace

const Method* find_method(std::string_view path) {
  const auto* found = std::ranges::find(kMethods, path, &Method::path);
  return found == std::end(kMethods) ? nullptr : found;
}

StatusCode code_of_http(int status) {
  switch (status) {
    case 400:
      return StatusCode::kInvalidArgument;
    case 401:
    case 403:
      return StatusCode::kUnauthenticated;
    case 404:
      return StatusCode::kNotFound;
    case 413:
    case 429:
      return StatusCode::kResourceExhausted;
    case 503:
      return StatusCode::kUnavailable;
    case 504:
      return StatusCode::kDeadlineExceeded;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace skiff::grpc
