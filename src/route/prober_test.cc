// What the router asks of instances beside requests, and over which connections.
#include "route/prober.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "fetch/name_server_testing.h"
#include "serve/http/server_testing.h"

namespace skiff::route {
namespace {

using namespace std::chrono_literals;

// A server that answers everything with metrics, and counts who asks for them.
class MetricsServer {
 public:
  uint16_t port() const { return server_.port(); }
  int asked() const { return asked_; }
  // To be read while nobody asks.
  const std::set<std::string>& clients() const { return clients_; }

 private:
  static http::HttpConfig one_worker() {
    http::HttpConfig config = http::local_http_config();
    config.worker_threads = 1;
    return config;
  }
  void answer(const http::HttpRequest& request, const std::shared_ptr<http::HttpReply>& reply) {
    if (request.path == "/metrics") {
      clients_.insert(request.client);
      ++asked_;
    }
    reply->send(http::plain(200, "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n"));
  }

  std::set<std::string> clients_;
  std::atomic<int> asked_{0};
  http::Echo server_{
      http::local_http_config(),
      [this](const http::HttpRequest& request, const std::shared_ptr<http::HttpReply>& reply) {
        answer(request, reply);
      }};
};

RouterConfig config_of(const Instance& instance) {
  RouterConfig config;
  config.backends = {instance};
  config.policy = "fd_metrics_score";
  config.health_interval = 0.01;
  return config;
}

// Returns whether the condition comes true while the router's thread does its work.
bool comes_true(RouterCore& core, const std::function<bool()>& holds) {
  const auto end = Clock::now() + 10s;
  while (!holds() && Clock::now() < end) {
    core.io.restart();
    core.io.run_for(5ms);
  }
  return holds();
}

Instance instance_at(uint16_t port, uint16_t metrics_port) {
  Instance instance;
  instance.host = "127.0.0.1";
  instance.port = port;
  instance.metrics_port = metrics_port;
  return instance;
}

TEST(Prober, KeepsTheConnectionToAMetricsPort) {
  MetricsServer server, metrics;
  RouterCore core(config_of(instance_at(server.port(), metrics.port())));
  Prober prober(core);
  const auto backend = core.registry.all()[0];
  for (int i = 0; i < 5; ++i) {
    backend->load.reported = -1;
    prober.probe(backend, [](bool) {});
    ASSERT_TRUE(comes_true(core, [&] { return backend->load.reported == 13; }));
  }
  EXPECT_EQ(metrics.clients().size(), 1u);
  EXPECT_EQ(metrics.asked(), 5);
  EXPECT_EQ(server.asked(), 0);
  drop_stale(*backend, core.legs, Clock::now() + 1h);
  EXPECT_TRUE(backend->metrics_place->idle.empty());
}

TEST(Prober, AsksWhereTheLastRegistrationSays) {
  MetricsServer server, first, second;
  RouterCore core(config_of(instance_at(server.port(), first.port())));
  Prober prober(core);
  prober.start();
  ASSERT_TRUE(comes_true(core, [&] { return first.asked() > 0; }));
  ASSERT_TRUE(core.registry.put(instance_at(server.port(), second.port()), true, Clock::now()));
  ASSERT_TRUE(comes_true(core, [&] { return second.asked() > 2; }));
  ASSERT_TRUE(core.registry.put(instance_at(server.port(), 0), true, Clock::now()));
  EXPECT_TRUE(comes_true(core, [&] { return server.asked() > 2; }));
}

// Knows this machine as "quick.example"; any other search hangs.
fetch::FindAddresses partly(fetch::Hanging& names) {
  return [hang = names.find()](const std::string& host) -> Result<fetch::Addresses> {
    if (host != "quick.example") return hang(host);
    return fetch::Addresses{"127.0.0.1"};
  };
}

std::shared_ptr<Backend> backend_named(const std::string& host, uint16_t port) {
  Instance instance = instance_at(port, 0);
  instance.host = host;
  return std::make_shared<Backend>(instance, true, 1, Clock::now());
}

TEST(Prober, AHangingNameStallsNoOther) {
  MetricsServer server;
  fetch::Hanging names;
  RouterConfig config;
  config.connect_seconds = config.health_timeout = 60;
  RouterCore core(config, partly(names));
  Prober prober(core);
  bool hanging_done = false;
  prober.probe(backend_named("hanging.example", server.port()), [&](bool) { hanging_done = true; });
  for (int i = 0; i < 3; ++i) {
    bool good = false;
    prober.probe(backend_named("quick.example", server.port()), [&](bool up) { good = up; });
    EXPECT_TRUE(comes_true(core, [&] { return good; }));
  }
  EXPECT_FALSE(hanging_done);
  names.let_go();
}

TEST(Prober, AHangingNameIsGivenUpInTime) {
  fetch::Hanging names;
  RouterConfig config;
  config.connect_seconds = 0.01;
  RouterCore core(config, partly(names));
  for (int i = 0; i < 3; ++i) {
    std::string why;
    get_text(core, backend_named("hanging.example", 80), "/health",
             [&](int, const std::string& text) { why = text; });
    EXPECT_TRUE(comes_true(core, [&] { return !why.empty(); }));
    EXPECT_EQ(why, "its name was not found in time");
  }
  EXPECT_EQ(names.asked(), 1);
}

TEST(Prober, AQuestionEndsWithTheRouter) {
  fetch::Hanging names;
  const auto held = std::make_shared<int>();
  {
    RouterCore core(RouterConfig{}, partly(names));
    get_text(core, backend_named("hanging.example", 80), "/health",
             [held](int, const std::string&) {});
    core.io.run_for(1ms);
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Prober, AnUnknownNameIsTrouble) {
  RouterCore core(RouterConfig{}, [](const std::string& host) -> Result<fetch::Addresses> {
    return fetch::name_trouble(host, "nobody knows it");
  });
  std::string why;
  get_text(core, backend_named("no.example", 80), "/health",
           [&](int, const std::string& text) { why = text; });
  EXPECT_TRUE(comes_true(core, [&] { return !why.empty(); }));
  EXPECT_EQ(why, "the name no.example: nobody knows it");
}

}  // namespace
}  // namespace skiff::route
