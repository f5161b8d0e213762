// serve/paddle/generation.h -- a request of PaddleNLP's protocol under way, whatever carries it:
// HTTP (legacy_form.h) or gRPC (serve/grpc).
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "base/json.h"
#include "serve/http/api_error.h"
#include "serve/paddle/request.h"
#include "serve/paddle/writer.h"
#include "serve/service/protocol_context.h"

namespace skiff::paddle {

// Where the objects of one reply go. Called by one thread at a time; must be quick and must not
// call the generation back.
class Outlet {
 public:
  virtual ~Outlet() = default;
  // One object of the reply, the `last` of them at its end.
  virtual void write(std::string object, bool last) = 0;
  // Ends the reply. `object` is the error in the protocol's form.
  virtual void fail(std::string object, const http::ApiError& error) = 0;
};

// What the carrier knows of a request beside its object.
struct Carrier {
  std::string request_id;           // the req_id of a request that brings none
  std::string cache_salt;           // see ApiKeys::cache_salt; empty where keys share the cache
  std::optional<int> replica = {};  // see service::Request
  bool http = false;       // else gRPC, where objects come one by one whatever the request says
  bool last_only = false;  // nothing but the last object
  // For the request log and traces; see service::RequestTag.
  std::string route = {}, traceparent = {};
  uint64_t serial = 0;
};

// The service's sink keeps it alive. Thread-safe.
class Generation : public service::OpenGeneration, public std::enable_shared_from_this<Generation> {
 public:
  Generation(service::ProtocolContext& context, const PaddleCall& call, ReplyFacts facts,
             service::Prepared prepared, service::Ticket ticket);

  // Called once. From now on `outlet` is called, until the end or cancel().
  void start(std::shared_ptr<Outlet> outlet);
  bool streams() const { return streams_; }
  // The client has left: frees what the request holds. Any thread.
  void cancel();
  void tick() override;
  void cut_off(service::CutOff why) override;

 private:
  void take(const service::Reply& reply);
  void fail(const http::ApiError& error);
  void end();

  const std::shared_ptr<service::ProtocolContext> context_;
  const std::string req_id_;
  const double token_seconds_;
  const bool streams_, http_, usage_;
  std::optional<service::Prepared> prepared_;  // until start()

  std::mutex mutex_;  // guards the rest
  std::shared_ptr<Outlet> outlet_;
  ReplyWriter writer_;
  service::Ticket ticket_;
  std::optional<service::RequestId> request_;
  bool done_ = false;
  std::chrono::steady_clock::time_point last_token_;
};

// Why there is no generation.
struct Refused {
  std::string req_id;
  http::ApiError error;
};

// Reads, checks, templates and tokenizes a request. The caller starts the result.
std::variant<std::shared_ptr<Generation>, Refused> prepare_generation(
    service::ProtocolContext& context, const PaddleConfig& config, const OrderedJson& object,
    const Carrier& carrier, service::Ticket ticket);

// The error_code of an error object.
int error_code(const http::ApiError& error);

}  // namespace skiff::paddle
