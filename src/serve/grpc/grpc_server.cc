#include "serve/grpc/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pthread.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "base/load_error.h"
#include "base/log.h"
#include "serve/grpc/call.h"

namespace skiff::grpc {
namespace {

namespace creds = ::grpc::experimental;

int milliseconds(double seconds) { return static_cast<int>(seconds * 1000); }

// The library's own log, which is about single connections.
void log_of_library(gpr_log_func_args* args) { spdlog::debug("grpc: {}", escaped(args->message)); }

std::string address(const GrpcConfig& config) {
  const bool bare = config.host.find(':') != std::string::npos && config.host.front() != '[';
  return fmt::format(fmt::runtime(bare ? "[{}]:{}" : "{}:{}"), config.host, config.port);
}

// The files are read again within seconds of a change; a key that does not belong to the
// certificate is not taken.
std::shared_ptr<::grpc::ServerCredentials> credentials(const GrpcConfig& config) {
  constexpr unsigned kRefreshSeconds = 5;
  if (config.tls_certificate.empty()) return ::grpc::InsecureServerCredentials();
  for (const std::string& file : {config.tls_certificate, config.tls_key})
    if (!std::ifstream(file, std::ios::binary).good()) fail_load("gRPC: {} cannot be read", file);
  creds::TlsServerCredentialsOptions options(
      std::make_shared<creds::FileWatcherCertificateProvider>(
          config.tls_key, config.tls_certificate, kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return creds::TlsServerCredentials(options);
}

void set_limits(const GrpcConfig& config, ::grpc::ServerBuilder& builder) {
  // A small message may stand for a huge one, so compressed ones are refused.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetMaxReceiveMessageSize(static_cast<int>(config.max_message));
  builder.SetMaxSendMessageSize(-1);
  builder.SetResourceQuota(::grpc::ResourceQuota("skiff").Resize(
      static_cast<size_t>(config.max_memory) + (size_t{64} << 20)));
  constexpr int kPingSeconds = 20, kMinPingSeconds = 10;
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_ALLOW_REUSEPORT, 0},  // a port in use is an error
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, config.max_calls},
      {GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(config.max_metadata)},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, milliseconds(config.handshake_seconds)},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(config.idle_seconds)},
      // A client that vanished without a word is noticed by pings.
      {GRPC_ARG_KEEPALIVE_TIME_MS, kPingSeconds * 1000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingSeconds * 1000},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingSeconds * 1000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
  };
  for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
}

class CallService : public ::grpc::CallbackGenericService {
 public:
  explicit CallService(CallCore& core) : core_(core) {}
  ::grpc::ServerGenericBidiReactor* CreateReactor(
      ::grpc::GenericCallbackServerContext* context) override {
    const auto call = std::make_shared<Call>(core_);
    call->open(*context);
    return call.get();
  }

 private:
  CallCore& core_;
};

class LibraryServer : public GrpcServer {
 public:
  LibraryServer(GrpcConfig config, Backend backend)
      : core_(std::move(config), std::move(backend)), service_(core_) {
    gpr_set_log_function(log_of_library);
    ::grpc::ServerBuilder builder;
    set_limits(core_.config, builder);
    builder.AddListeningPort(address(core_.config), credentials(core_.config), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      fail_load("--grpc-port: cannot listen on {}; is the port in use?", address(core_.config));
    for (int i = 0; i < core_.config.worker_threads; ++i)
      workers_.emplace_back([this] { run(core_.work); });
    workers_.emplace_back([this] { run(core_.large); });
  }
  ~LibraryServer() override { stop(); }

  uint16_t port() const override { return static_cast<uint16_t>(port_); }
  int open_requests() const override { return core_.shared.open_requests; }
  void tick() override { core_.shared.tick(); }

  // The library ends a call only after our reactor has, which may wait for a worker.
  void stop() override {
    if (std::exchange(stopped_, true)) return;
    constexpr std::chrono::milliseconds kForLastMessages{200};
    server_->Shutdown(std::chrono::system_clock::now() + kForLastMessages);
    core_.work.close();
    core_.large.close();
    for (std::thread& worker : workers_) worker.join();
  }

 private:
  static void run(Queue<std::function<void()>>& jobs) {
    pthread_setname_np(pthread_self(), "grpc work");
    while (auto job = jobs.pop()) (*job)();
  }

  CallCore core_;
  CallService service_;
  int port_ = 0;
  bool stopped_ = false;
  std::unique_ptr<::grpc::Server> server_;
  std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<GrpcServer> make_grpc_server(GrpcConfig config, Backend backend) {
  return std::make_unique<LibraryServer>(std::move(config), std::move(backend));
}

}  // namespace skiff::grpc
