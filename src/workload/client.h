// workload/client.h -- requests streams from any OpenAI-compatible server and records when their
// pieces came. One thread drives all of them; Boost.Asio stays inside client.cc.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace skiff::workload {

// http://host[:port][/prefix]; the prefix stands before /v1/... in every request.
struct ServerUrl {
  std::string host, port, prefix;
};
Result<ServerUrl> parse_url(const std::string& url);

// The outcome of one request. Times are seconds since the client was constructed.
struct StreamOutcome {
  double sent = 0, first = 0, done = 0;        // `first`: the first text, or a textless end
  std::vector<double> gaps;                    // times between pieces of text
  int status = 0;                              // HTTP status; 0: no answer
  std::string error;                           // empty if the stream ended as it should
  int prompt = 0, cached = 0, completion = 0;  // tokens, as the server's usage says
  // The server had closed the kept-alive connection, so the request went out again over a new one.
  bool reopened = false;
  bool ok() const { return error.empty(); }
};

class LoadClient {
 public:
  struct Options {
    ServerUrl server;
    std::string api_key;   // no key if empty
    double timeout = 600;  // limit on the seconds without a byte
  };
  using Done = std::function<void(StreamOutcome)>;

  explicit LoadClient(Options options);
  ~LoadClient();

  double now() const;  // seconds since the client was constructed
  // The functions below may be called only before run() or from a callback inside it. POSTs `body`,
  // which must ask for a stream; `done` is called when it has ended. Connections are kept alive. If
  // the server has closed one meanwhile, so that no byte of a response comes over it, the request
  // is sent again over a new connection, once; what happens on a new connection is final.
  void post(const std::string& path, std::string body, Done done);
  void at(double time, std::function<void()> action);
  // Returns when every stream and timer has ended.
  void run();
  // Returns the body of a GET, or an Error with the status.
  Result<std::string> get(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::workload
