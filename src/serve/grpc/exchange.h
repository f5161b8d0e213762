// serve/grpc/exchange.h -- one remote call, between what answers it (methods.h) and the connection
// that carries it (grpc_server.h).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "serve/http/api_keys.h"
#include "serve/http/route_table.h"
#include "serve/paddle/request.h"
#include "serve/service/protocol_context.h"

namespace skiff::grpc {

// gRPC's status codes, as far as the server uses them.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

// The code for a failure that has this status in HTTP.
StatusCode code_of_http(int status);

// The server's end of one call. Thread-safe.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Sends a message to the client, after those before it. False once nothing can be sent any more:
  // the call has ended, or too many bytes wait for a client that does not read.
  virtual bool send(std::string message) = 0;
  // Ends the call when everything before has been sent. Later calls have no effect.
  virtual void finish(StatusCode code, std::string why) = 0;
  // Keeps the exchange and its handler alive.
  virtual std::shared_ptr<Exchange> share() = 0;
  // The client's metadata as a request's headers.
  virtual const http::HttpRequest& head() const = 0;
};

// What answers one call. The functions are called one at a time, except that cancelled() may come
// at any time from any thread.
class Handler {
 public:
  virtual ~Handler() = default;
  // A message of the client, on a worker thread.
  virtual void message(std::string bytes) = 0;
  // The client sends no more messages.
  virtual void half_closed() {}
  // The client has left, or is disconnected: called once. Must be quick.
  virtual void cancelled() {}
};

// What the calls are answered from. Its functions may be called from any thread.
struct Backend {
  std::function<std::shared_ptr<service::ProtocolContext>()> protocol;  // null while loading
  std::function<std::string()> unready;  // why a new request would not be served; empty: it would
  const http::ApiKeys& keys;             // outlives the server
  std::string version;                   // the server's
  paddle::PaddleConfig paddle;
  // Gets an entry for each call that has ended; may be empty. Its status is the call's, as gRPC
  // numbers them.
  std::function<void(const http::HttpRecord&)> record;
};

}  // namespace skiff::grpc
