// serve/journal/journal.h -- one entry for each request that reaches a handler by POST: a line of
// the request log, and a span for the collector of traces. It joins what the service tells of
// prompts with what the edge tells of replies; both are written by threads of their own, so that
// neither a slow disk nor a collector that hangs is felt by requests.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/http/server.h"
#include "serve/service/request_observer.h"

namespace skiff::journal {

struct JournalConfig {
  std::string log_file;         // empty: no request log
  std::string traces_endpoint;  // URL of a collector's /v1/traces; empty: no spans
  std::vector<std::pair<std::string, std::string>> traces_headers;
  std::string service_name = "skiff", version;
};

// Thread-safe.
class Journal : public service::RequestObserver {
 public:
  // Throws LoadError if the file cannot be opened or the URL is none.
  explicit Journal(const JournalConfig& config);
  ~Journal() override;  // calls stop()

  // Called by the edge when a request has come to a handler, and when its reply is complete or
  // given up.
  void arrived(const http::HttpRequest& request);
  void replied(const http::HttpRecord& record);
  // Called by the service. Requests that did not come by HTTP have an entry, too.
  void started(const service::RequestTag& tag) override;
  void ended(service::RequestSummary summary) override;
  Counts counts() const override;

  // Opens the log's file again, which may have been renamed.
  void reopen();
  // Writes what waits, for at most some seconds. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::journal
