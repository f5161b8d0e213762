#include "serve/service/admit.h"

#include <fmt/format.h>

#include <algorithm>

namespace skiff::service {

using Kind = AdmissionRefusal::Kind;

AdmissionControl::AdmissionControl(int max_concurrency, std::vector<std::string> model_names,
                                   Service& service)
    : max_concurrency_(max_concurrency), model_names_(std::move(model_names)), service_(service) {}

std::variant<Ticket, AdmissionRefusal> AdmissionControl::admit() {
  if (draining_) return AdmissionRefusal{Kind::kDraining, "the server is shutting down"};
  if (auto refused = refuse_when_paused()) return std::move(*refused);
  const bool full = open_.fetch_add(1) >= max_concurrency_;
  std::variant<Ticket, AdmissionRefusal> admitted = Ticket(&open_);
  if (full) return too_many();
  if (auto refused = check_queue({})) return std::move(*refused);
  return admitted;
}

AdmissionRefusal AdmissionControl::too_many() {
  return {Kind::kConcurrency,
          fmt::format("Too many requests, current max concurrency is {}", max_concurrency_),
          service_.refused(Refusal::kConcurrency)};
}

std::optional<AdmissionRefusal> AdmissionControl::refuse_when_paused() {
  constexpr int kRetrySeconds = 5;
  if (!service_.paused()) return std::nullopt;
  const Status health = service_.health();  // says why, unless it was resumed just now
  service_.refused(Refusal::kPaused);
  return AdmissionRefusal{Kind::kPaused, health ? "the server is paused" : health.error().what,
                          kRetrySeconds};
}

std::optional<AdmissionRefusal> AdmissionControl::refuse_when_full() {
  if (auto refused = refuse_when_paused()) return refused;
  if (open_ >= max_concurrency_) return too_many();
  return service_.queue_full() ? check_queue({}) : std::nullopt;
}

std::optional<AdmissionRefusal> AdmissionControl::check_model(std::string_view name) const {
  if (name.empty() || name == "default" || std::ranges::count(model_names_, name) > 0)
    return std::nullopt;
  return unknown_model(name);
}

AdmissionRefusal AdmissionControl::unknown_model(std::string_view name) const {
  constexpr size_t kMaxShown = 200;
  return {Kind::kUnknownModel, fmt::format("The model `{}` does not exist; this server has `{}`.",
                                           name.substr(0, kMaxShown), model_names_.front())};
}

std::optional<AdmissionRefusal> AdmissionControl::check_queue(std::span<const Prepared> prompts) {
  auto overload = service_.overloaded(prompts);
  if (!overload) return std::nullopt;
  return AdmissionRefusal{Kind::kQueueFull, std::move(overload->why), overload->retry_seconds};
}

}  // namespace skiff::service
