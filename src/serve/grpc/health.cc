// grpc.health.v1: the answer of /health for gRPC's own health checks.
#include <algorithm>

#include "serve/grpc/methods.h"
#include "serve/grpc/wire.h"

namespace skiff::grpc {
namespace {

enum class Health { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// Watching is open to everybody, so it is bounded.
constexpr size_t kMaxWatchers = 64;

std::string health_response(Health health) {
  std::string message;
  put_number(message, 1, static_cast<uint64_t>(health));
  return message;
}

// The service that the request names. False if the bytes are no request.
bool read_service(std::string_view message, std::string_view* service) {
  WireReader reader(message);
  while (reader.next())
    if (reader.is(1, WireType::kBytes)) *service = reader.bytes();
  return reader.good();
}

bool is_known(std::string_view service) {
  static constexpr std::string_view kServices[] = {"", "inference.GRPCInferenceService",
                                                   "grpc.health.v1.Health"};
  return std::ranges::find(kServices, service) != std::end(kServices);
}

Health now(bool serving) { return serving ? Health::kServing : Health::kNotServing; }

class Check : public Handler {
 public:
  Check(Shared& shared, Exchange& exchange) : shared_(shared), exchange_(exchange) {}
  void message(std::string bytes) override {
    std::string_view service;
    if (!read_service(bytes, &service))
      return exchange_.finish(StatusCode::kInvalidArgument, "the request is no message");
    if (!is_known(service))
      return exchange_.finish(StatusCode::kNotFound, "there is no service of that name");
    exchange_.send(health_response(now(shared_.serving())));
    exchange_.finish(StatusCode::kOk, {});
  }

 private:
  Shared& shared_;
  Exchange& exchange_;
};

class Watch : public Handler {
 public:
  Watch(Shared& shared, Exchange& exchange) : shared_(shared), exchange_(exchange) {}
  void message(std::string bytes) override {
    std::string_view service;
    if (!read_service(bytes, &service))
      return exchange_.finish(StatusCode::kInvalidArgument, "the request is no message");
    std::lock_guard lock(shared_.mutex);
    for (auto* open : {&shared_.watchers, &shared_.waiting})
      std::erase_if(*open, [](const auto& weak) { return weak.expired(); });
    if (shared_.watchers.size() + shared_.waiting.size() >= kMaxWatchers)
      return exchange_.finish(StatusCode::kResourceExhausted, "too many watch the health already");
    // The protocol keeps the call open: a service that is unknown may come later.
    if (!is_known(service)) {
      shared_.waiting.push_back(exchange_.share());
      exchange_.send(health_response(Health::kServiceUnknown));
      return;
    }
    if (shared_.watchers.empty()) shared_.told = shared_.serving();
    shared_.watchers.push_back(exchange_.share());
    exchange_.send(health_response(now(shared_.told)));
  }

 private:
  Shared& shared_;
  Exchange& exchange_;
};

}  // namespace

void Shared::tick() {
  std::vector<std::shared_ptr<Exchange>> all;
  bool serves = false;
  {
    std::lock_guard lock(mutex);
    if (watchers.empty()) return;
    serves = serving();
    if (serves == told) return;
    told = serves;
    for (const auto& weak : watchers)
      if (auto exchange = weak.lock()) all.push_back(std::move(exchange));
  }
  for (const auto& exchange : all) exchange->send(health_response(now(serves)));
}

std::unique_ptr<Handler> health_check(Shared& shared, Exchange& exchange) {
  return std::make_unique<Check>(shared, exchange);
}

std::unique_ptr<Handler> health_watch(Shared& shared, Exchange& exchange) {
  return std::make_unique<Watch>(shared, exchange);
}

}  // namespace skiff::grpc
