#include "route/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace skiff::route {
namespace {

void header(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Number>
void write_one(std::string_view name, std::string_view type, std::string_view help, Number value,
               std::string* out) {
  header(name, type, help, out);
  fmt::format_to(std::back_inserter(*out), "{} {}\n", name, value);
}

// A line for each backend. URLs have no character that a label would have to escape.
template <class Value>
void write_each(std::string_view name, std::string_view type, std::string_view help,
                const Registry& registry, Value value, std::string* out) {
  header(name, type, help, out);
  for (const auto& backend : registry.all())
    fmt::format_to(std::back_inserter(*out), "{}{{backend=\"{}\",role=\"{}\"}} {}\n", name,
                   backend->url, route::name(backend->instance.role), value(*backend));
}

}  // namespace

void Histogram::add(double seconds) {
  ++count_;
  sum_ += seconds;
  for (size_t i = 0; i < kBounds.size(); ++i)
    if (seconds <= kBounds[i]) ++counts_[i];
}

void Histogram::write(std::string_view name, std::string_view help, std::string* out) const {
  header(name, "histogram", help, out);
  for (size_t i = 0; i < kBounds.size(); ++i)
    fmt::format_to(std::back_inserter(*out), "{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i],
                   counts_[i]);
  fmt::format_to(std::back_inserter(*out),
                 "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count_, sum_);
}

std::string Metrics::text(const Registry& registry, size_t open) const {
  std::string out;
  header("skiff_router_requests_total", "counter",
         "Requests that were answered, by status; 0: the client left first.", &out);
  for (const auto& [status, count] : answers)
    fmt::format_to(std::back_inserter(out), "skiff_router_requests_total{{status=\"{}\"}} {}\n",
                   status, count);
  write_one("skiff_router_open_requests", "gauge", "Requests under way.", open, &out);
  write_one("skiff_router_retries_total", "counter", "Requests that were sent to another backend.",
            retries, &out);
  write_one("skiff_router_broken_answers_total", "counter",
            "Answers that a backend broke off after they had begun.", broken, &out);
  write_one("skiff_router_registrations_total", "counter", "Registrations and heartbeats.",
            registrations, &out);
  write_one("skiff_router_refused_registrations_total", "counter", "Registrations refused.",
            refused_registrations, &out);
  write_one("skiff_router_prompt_tokens_total", "counter",
            "Tokens of prompts, estimated from their bytes.", prompt_tokens, &out);
  write_one("skiff_router_cached_tokens_total", "counter",
            "Tokens of prompts whose backend had seen them lately, estimated.", cached_tokens,
            &out);
  dispatch.write("skiff_router_dispatch_seconds",
                 "From a whole request to its way to a backend: the router's own part.", &out);
  first_byte.write("skiff_router_first_byte_seconds",
                   "From the way to a backend to the head of its answer.", &out);
  write_each(
      "skiff_router_backend_up", "gauge", "1: the backend gets requests.", registry,
      [](const Backend& backend) { return backend.usable() ? 1 : 0; }, &out);
  write_each(
      "skiff_router_backend_running", "gauge", "Requests under way.", registry,
      [](const Backend& backend) { return backend.load.running; }, &out);
  write_each(
      "skiff_router_backend_waiting_tokens", "gauge",
      "Prompt tokens of requests that have no answer yet, estimated.", registry,
      [](const Backend& backend) { return backend.load.waiting; }, &out);
  write_each(
      "skiff_router_backend_requests_total", "counter", "Requests sent.", registry,
      [](const Backend& backend) { return backend.requests; }, &out);
  write_each(
      "skiff_router_backend_failures_total", "counter",
      "Requests without a whole answer because of the connection.", registry,
      [](const Backend& backend) { return backend.failures; }, &out);
  return out;
}

}  // namespace skiff::route
