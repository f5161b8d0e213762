#include "serve/service/overload.h"

#include <fmt/format.h>

namespace skiff {

ApiError too_many_requests(Front& front) {
  return retry_later(api_error(429, fmt::format("Too many requests, current max concurrency is {}",
                                                front.gate.most())),
                     front.service.refused(Refusal::kConcurrency));
}

std::optional<ApiError> refuse_waiting(Front& front, std::span<const Prepared> prompts) {
  const auto overload = front.service.overloaded(prompts);
  if (!overload) return std::nullopt;
  return retry_later(api_error(429, overload->why), overload->retry_seconds);
}

std::optional<ApiError> refuse_when_full(Front& front) {
  if (front.gate.full()) return too_many_requests(front);
  return front.service.queue_full() ? refuse_waiting(front, {}) : std::nullopt;
}

}  // namespace skiff
