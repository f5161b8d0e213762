// bench/serve/load_client.h -- the client: one thread, plain sockets, epoll. It runs in a process
// of its own, so that the CPU time of the server is measured apart from the client's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace skiff::bench {

struct StreamLoad {
  uint16_t port = 0;
  int connections = 64;
  int rounds = 1;            // requests one after another on each connection
  std::string body;          // body of POST /v1/chat/completions; must ask for a stream
  bool probe_health = true;  // GET /health on a connection of its own, one every 2 ms
};

struct StreamReport {
  double seconds = 0;     // from the first request sent to the last byte received
  double client_cpu = 0;  // seconds
  uint64_t events = 0;    // events of all streams, including "[DONE]"
  uint64_t tokens = 0;    // by the usage of each reply
  uint64_t bytes = 0;
  uint64_t failures = 0;  // connections that broke, or did not answer 200
  double health_p50 = 0, health_p99 = 0, health_max = 0;  // seconds
  uint64_t health_count = 0;
};

// User and system time that this process has taken so far.
double cpu_seconds();

StreamReport run_streams(const StreamLoad& load);

// Opens streams and holds them without reading on. The destructor closes them.
class HeldStreams {
 public:
  HeldStreams(uint16_t port, int count, const std::string& body);
  ~HeldStreams();
  HeldStreams(const HeldStreams&) = delete;
  HeldStreams& operator=(const HeldStreams&) = delete;
  // Returns how many have answered with a stream by now.
  int opened();

 private:
  std::vector<int> sockets_;
};

// Returns the whole reply to one request, with its headers; the connection is closed after it.
std::string exchange(uint16_t port, const std::string& request);
std::string post(const std::string& body, bool keep_alive);
// Returns the body of a chunked reply.
std::string unchunked(const std::string& reply);

}  // namespace skiff::bench
