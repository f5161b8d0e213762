// workload/client.h -- streams from any OpenAI-compatible server, with the times at which their
// pieces came. One thread drives all of them; Boost.Asio stays inside client.cc.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace skiff {

// http://host[:port][/prefix]; the prefix stands before /v1/... in every request.
struct ServerUrl {
  std::string host, port, prefix;
};
Result<ServerUrl> parse_url(const std::string& url);

// What one request met. Times are seconds since the client was made.
struct StreamOutcome {
  double sent = 0, first = 0, done = 0;        // first: the first piece of text
  std::vector<double> gaps;                    // between pieces of text
  int status = 0;                              // of HTTP; 0: no answer
  std::string error;                           // empty if the stream ended as it should
  int prompt = 0, cached = 0, completion = 0;  // tokens, as the server's usage says
  bool ok() const { return error.empty(); }
};

class LoadClient {
 public:
  struct Options {
    ServerUrl server;
    std::string api_key;   // empty: none
    double timeout = 600;  // seconds without a byte
  };
  using Done = std::function<void(StreamOutcome)>;

  explicit LoadClient(Options options);
  ~LoadClient();

  double now() const;  // seconds since the client was made
  // All below only from within run(), or before it.
  // POSTs `body`, which must ask for a stream; `done` is called when it has ended.
  void post(const std::string& path, std::string body, Done done);
  void at(double time, std::function<void()> action);
  // Runs until nothing is left to wait for.
  void run();
  // The body of a GET, or an Error with the status.
  Result<std::string> get(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff
