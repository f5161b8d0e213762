// serve/grpc/call.h -- one remote call over libgrpc++: its messages in, its answers out. Private to
// the gRPC server.
#pragma once
#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/queue.h"
#include "serve/grpc/grpc_server.h"
#include "serve/grpc/methods.h"

namespace skiff::grpc {

// What all calls of a server share; outlives them.
struct CallCore {
  CallCore(GrpcConfig given, Backend backend)
      : config(std::move(given)), shared(std::move(backend)) {}
  const GrpcConfig config;
  Shared shared;
  Queue<std::function<void()>> work;   // for the workers
  Queue<std::function<void()>> large;  // for the one thread that reads large messages
  // The size of all messages that wait for a worker or are with one.
  std::atomic<int64_t> message_bytes{0};
};

// Every call is served as a stream of messages, which is what a call of one message is on the wire,
// too: so a key is looked at before a message is read, and an unknown method costs nothing.
//
// Keeps itself alive until the library is done with it.
class Call : public ::grpc::ServerGenericBidiReactor,
             public Exchange,
             public std::enable_shared_from_this<Call> {
 public:
  explicit Call(CallCore& core) : core_(core) {}

  // Called once, before the library gets the reactor.
  void open(const ::grpc::GenericCallbackServerContext& context);

  bool send(std::string message) override;
  void finish(StatusCode code, const std::string& why) override;
  std::shared_ptr<Exchange> share() override { return shared_from_this(); }
  const http::HttpRequest& head() const override { return head_; }

 private:
  void OnReadDone(bool good) override;
  void OnWriteDone(bool good) override;
  void OnCancel() override;
  void OnDone() override;

  void handle(std::string message);
  void read_next();
  void abandon(StatusCode code, const std::string& why);
  void end(StatusCode code, const std::string& why);  // requires mutex_, as does pump()
  void pump();

  CallCore& core_;
  std::shared_ptr<Call> self_;  // keeps the call alive from open() to OnDone()
  const Method* method_ = nullptr;
  http::HttpRequest head_;
  http::HttpRecord record_;
  std::chrono::steady_clock::time_point began_;
  std::unique_ptr<Handler> handler_;
  ::grpc::ByteBuffer incoming_, outgoing_;

  std::mutex mutex_;  // guards the rest
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0, writing_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  bool writing_ = false;   // a message is with the library
  bool ending_ = false;    // nothing more is accepted
  bool finished_ = false;  // the library has the status
  bool left_ = false;      // the handler knows that the client has left
  ::grpc::Status status_;
};

}  // namespace skiff::grpc
