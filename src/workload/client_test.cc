#include "workload/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <list>
#include <thread>

#include "base/json.h"
#include "workload/serve_bench.h"

namespace skiff::workload {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
using net::ip::tcp;

// Takes connections on a free port, one after another, and lets the test decide what happens on
// each. A socket that the test does not close stays open until the server is destroyed.
class ScriptedServer {
 public:
  using Script = std::function<void(tcp::socket& socket, int connection)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    acceptor_.non_blocking(true);
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }

  int connections() const { return connections_; }
  LoadClient::Options address() const {
    return {.server = {.host = "127.0.0.1",
                       .port = std::to_string(acceptor_.local_endpoint().port()),
                       .prefix = ""}};
  }

 private:
  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      tcp::socket socket(io_);
      boost::system::error_code error;
      if (acceptor_.accept(socket, error)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      try {
        script_(socket, connections_++);
      } catch (const boost::system::system_error&) {
        socket = tcp::socket(io_);  // the client has gone
      }
      sockets_.push_back(std::move(socket));
    }
  }

  net::io_context io_;
  tcp::acceptor acceptor_{io_, tcp::endpoint(net::ip::address_v4::loopback(), 0)};
  std::list<tcp::socket> sockets_;
  const Script script_;
  std::atomic<int> connections_{0};
  std::jthread thread_;  // the last member: it stops before the others go
};

void read_request(tcp::socket& socket) {
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> request;
  http::read(socket, buffer, request);
}

// A chunk of vLLM's completions stream, without the ids.
std::string piece(const std::string& text) {
  return R"(data: {"object":"text_completion","choices":[{"index":0,"text":")" + text +
         R"(","logprobs":null,"finish_reason":null}]})" + "\n\n";
}
const std::string kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":12,"
    "\"completion_tokens\":3}}\n\n";

void answer(tcp::socket& socket, const std::string& usage = kUsage) {
  const std::string body = piece("a") + piece("b") + usage + "data: [DONE]\n\n";
  net::write(socket, net::buffer("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                 "Content-Length: " +
                                 std::to_string(body.size()) + "\r\n\r\n" + body));
}

// Sends `count` requests, one after another, and returns the report.
ServeReport load(const ScriptedServer& server, size_t count) {
  LoadClient client(server.address());
  ServeBench bench{.model = "default", .requests = {}, .concurrency = 1};
  bench.requests.assign(count, {.at = 0, .input = 9, .output = 3, .hashes = {}});
  return run_serve_bench(client, bench);
}

TEST(LoadClient, KeepsOneConnectionWhereTheServerDoes) {
  ScriptedServer server([](tcp::socket& socket, int) {
    for (;;) {
      read_request(socket);
      answer(socket);
    }
  });
  const ServeReport report = load(server, 4);
  EXPECT_EQ(report.succeeded, 4) << report.first_error;
  EXPECT_EQ(report.reopened, 0);
  EXPECT_EQ(server.connections(), 1);
}

TEST(LoadClient, OpensAConnectionAgainThatTheServerClosedAfterItsResponse) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
    socket.close();
  });
  const ServeReport report = load(server, 4);
  EXPECT_EQ(report.succeeded, 4) << report.first_error;
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.reopened, 3);
  EXPECT_EQ(server.connections(), 4);
  EXPECT_NE(to_text(report).find("reopened  3"), std::string::npos);
  EXPECT_EQ(parse_json(to_json(report))->at("reopened"), 3);
}

TEST(LoadClient, OpensAConnectionAgainThatTheServerHalfClosed) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
    socket.shutdown(tcp::socket::shutdown_send);
  });
  const ServeReport report = load(server, 3);
  EXPECT_EQ(report.succeeded, 3) << report.first_error;
  EXPECT_EQ(report.reopened, 2);
}

// The close overtakes the request: its bytes are still unread, so the client sees a reset.
TEST(LoadClient, OpensAConnectionAgainThatTheServerClosesAtTheFirstByteOfTheNextRequest) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
    char byte;
    socket.receive(net::buffer(&byte, 1));
    socket.close();
  });
  const ServeReport report = load(server, 3);
  EXPECT_EQ(report.succeeded, 3) << report.first_error;
  EXPECT_EQ(report.reopened, 2);
}

TEST(LoadClient, ANewConnectionThatClosesIsAFailure) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    socket.close();
  });
  const ServeReport report = load(server, 2);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.reopened, 0);
  EXPECT_FALSE(report.first_error.empty());
  EXPECT_EQ(server.connections(), 2);
}

TEST(LoadClient, IsReopenedOnceOnly) {
  ScriptedServer server([](tcp::socket& socket, int connection) {
    read_request(socket);
    if (connection == 0) answer(socket);
    socket.close();
  });
  const ServeReport report = load(server, 2);
  EXPECT_EQ(report.succeeded, 1);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.reopened, 1);
  EXPECT_EQ(server.connections(), 2);
}

// Half a response may not be asked for again: the server has begun to work on it.
TEST(LoadClient, AResponseThatBreaksOffIsAFailure) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
    read_request(socket);
    net::write(socket, net::buffer(std::string("HTTP/1.1 2")));
    socket.close();
  });
  const ServeReport report = load(server, 2);
  EXPECT_EQ(report.succeeded, 1);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.reopened, 0);
  EXPECT_EQ(server.connections(), 1);
}

TEST(LoadClient, CountsPiecesWhereTheServerSendsNoUsage) {
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
    read_request(socket);
    answer(socket, /*usage=*/"");
  });
  const ServeReport report = load(server, 2);
  EXPECT_EQ(report.succeeded, 2) << report.first_error;
  EXPECT_EQ(report.unmetered, 1);
  EXPECT_EQ(report.completion, 3 + 2);
}

TEST(LoadClient, ARequestThatGoesOutLateHasWaited) {
  constexpr double kDue = 0.05, kBusy = 0.4;
  ScriptedServer server([](tcp::socket& socket, int) {
    read_request(socket);
    answer(socket);
  });
  LoadClient client(server.address());
  const auto busy = [&] { std::this_thread::sleep_for(std::chrono::duration<double>(kBusy)); };
  client.at(client.now(), busy);
  ServeBench bench{.model = "default", .requests = {}};
  bench.requests = {{.at = kDue, .input = 9, .output = 3, .hashes = {}}};
  const ServeReport report = run_serve_bench(client, bench);
  ASSERT_EQ(report.succeeded, 1) << report.first_error;
  EXPECT_GE(report.lag.max, (kBusy - kDue) / 2);
  EXPECT_GE(report.ttft.max, report.lag.max);
  EXPECT_GE(report.e2e.max, report.ttft.max);
  EXPECT_NE(to_text(report).find("sent too late"), std::string::npos);
}

TEST(RequestBody, APromptOfIdsHasExactlyTheLengthAskedFor) {
  ServeBench bench{.model = "m", .prompt_vocab = 50, .requests = {}};
  bench.requests.assign(2, {.at = 0, .input = 700, .output = 5, .hashes = {}});
  const Json first = *parse_json(request_body(bench, 0));
  ASSERT_EQ(first["prompt"].size(), 700u);
  for (const Json& id : first["prompt"]) {
    EXPECT_GE(id.get<int>(), 0);
    EXPECT_LT(id.get<int>(), 50);
  }
  EXPECT_EQ(first["max_tokens"], 5);
  EXPECT_EQ(first["ignore_eos"], true);
  EXPECT_EQ(first["stream_options"]["include_usage"], true);
  EXPECT_NE(parse_json(request_body(bench, 1))->at("prompt"), first["prompt"]);
  EXPECT_EQ(request_body(bench, 0), first.dump()) << "the same request always gives the same body";
}

}  // namespace
}  // namespace skiff::workload
